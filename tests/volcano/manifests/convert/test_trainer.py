# SPDX-License-Identifier: Apache-2.0
"""TrainJobs: runtime, trainer and overrides together are the pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def runtime(policy: dict[str, Any], template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A runtime of the cluster's own, with an initializer beside the trainer."""
    jobs = [
        {
            "name": "dataset-initializer",
            "template": {
                "metadata": {"labels": {ANCESTOR: "dataset-initializer"}},
                "spec": {"template": {"spec": {"containers": [{"name": "dataset-initializer", "image": "init:1"}]}}},
            },
        },
        {
            "name": "node",
            "dependsOn": [{"name": "dataset-initializer", "status": "Complete"}],
            "template": {"metadata": {"labels": {ANCESTOR: "trainer"}}, "spec": {"template": template}},
        },
    ]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "own"},
        "spec": {"mlPolicy": {"numNodes": 1, **policy}, "template": {"spec": {"replicatedJobs": jobs}}, **spec},
    }


def own(make: Any, **spec: Any) -> dict[str, Any]:
    """A TrainJob on that runtime."""
    job = make.train_job(**spec)
    job["spec"]["runtimeRef"] = {"name": "own"}
    return job


def test_torchrun_is_framework_pytorch(make: Any, converted: Any) -> None:
    """Nodes are workers; without a number there is a process for each CPU, as in Trainer."""
    spec = converted(make.train_job()).spec["spec"]
    assert spec["framework"] == "pytorch"
    assert spec["image"].startswith("pytorch/pytorch:")
    assert spec["roles"]["worker"]["replicas"] == 3
    assert spec["roles"]["worker"]["procs"] == 4
    assert spec["roles"]["worker"]["resources"]["reserved"] is True


def test_any_other_program_gets_trainers_variables(make: Any, converted: Any) -> None:
    """It is started once a node, as it is."""
    job = make.train_job()
    job["spec"]["trainer"]["command"] = ["python", "train.py"]
    spec = converted(job).spec["spec"]
    assert spec["framework"] == "custom"
    assert spec["env"]["PET_NODE_RANK"] == "$(KFP_VOLCANO_TASK_INDEX)"
    assert spec["env"]["PET_NNODES"] == "3"
    assert spec["env"]["A"] == "1"


def test_the_jobs_words_stand_over_the_runtimes(make: Any, converted: Any) -> None:
    """Image, resources and environment; what it does not say stays."""
    group = {"volcano": {"networkTopology": {"mode": "hard", "highestTierAllowed": 2}}}
    given = runtime({"torch": {}}, make.template("node"), podGroupPolicy=group)
    job = own(make)
    job["spec"]["trainer"].update(image="mine:2", env=[{"name": "NCCL_DEBUG", "value": "WARN"}])
    spec = converted(given, job).spec["spec"]
    assert spec["image"] == "mine:2"
    assert spec["env"]["NCCL_DEBUG"] == "WARN"
    assert spec["env"]["TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "token"}}
    assert spec["roles"]["worker"]["resources"]["cpu"] == 4
    assert spec["placement"]["topology"] == {"mode": "hard", "tier": 2}


def test_initializers_are_told(make: Any, converted: Any) -> None:
    """Nothing fills the volume before training."""
    job = own(make, initializer={"dataset": {"storageUri": "hf://tatsu-lab/alpaca"}})
    result = converted(runtime({"torch": {}}, make.template("node")), job)
    lost = {entry.path for entry in result.entries if entry.outcome == "lost"}
    assert "spec.initializer" in lost
    assert any(path.startswith("runtime.spec.template.spec.replicatedJobs[0]") for path in lost)


@pytest.mark.parametrize(
    "override",
    [
        {"podSpecOverrides": [{"targetJobs": [{"name": "node"}], "nodeSelector": {"zone": "a"}}]},
        {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"zone": "a"}}}]},
        {"podTemplateOverrides": [{"spec": {"nodeSelector": {"zone": "a"}}}]},
        {
            "runtimePatches": [
                {
                    "manager": "example.io/team",
                    "trainingRuntimeSpec": {
                        "template": {
                            "spec": {
                                "replicatedJobs": [
                                    {
                                        "name": "node",
                                        "template": {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}},
                                    }
                                ]
                            }
                        }
                    },
                }
            ]
        },
    ],
    ids=["v2.0", "v2.1", "v2.1-all", "v2.3"],
)
def test_overrides_of_each_version_reach_the_pods(make: Any, converted: Any, override: Any) -> None:
    """They add to what the runtime says."""
    given = runtime({"torch": {}}, make.template("node"))
    placement = converted(given, own(make, **copy.deepcopy(override))).spec["spec"]["placement"]
    assert placement["nodeSelector"] == {"pool": "gpu", "zone": "a"}


def test_an_override_adds_to_the_containers(make: Any, converted: Any) -> None:
    """Environment of the trainer's container, volumes, and what it says of others."""
    override = {
        "spec": {
            "containers": [
                {
                    "name": "node",
                    "env": [{"name": "B", "value": "2"}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                },
                {"name": "log-agent", "env": [{"name": "L", "value": "1"}]},
            ],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}],
        }
    }
    job = own(make, podTemplateOverrides=[override])
    spec = converted(runtime({"torch": {}}, make.template("node")), job).spec["spec"]
    assert spec["env"]["B"] == "2"
    assert spec["volumes"]["v"] == {"claim": "v", "mount": "/v"}
    sidecars = spec["roles"]["worker"]["podPatch"]["spec"]["containers"][1:]
    assert [sidecar.get("env") for sidecar in sidecars if sidecar["name"] == "log-agent"] == [
        [{"name": "L", "value": "1"}]
    ]


def test_elastic_runtimes_may_be_resized(make: Any, converted: Any) -> None:
    """Trainer 2.0 to 2.2 say so in the policy of PyTorch."""
    policy = {"torch": {"elasticPolicy": {"minNodes": 2, "maxNodes": 5, "maxRestarts": 7}}}
    spec = converted(runtime(policy, make.template("node")), own(make)).spec["spec"]
    assert spec["elasticity"]["strategy"] == "restart"
    assert spec["roles"]["worker"]["replicas"] == {"min": 2, "max": 5, "initial": 3}
    assert spec["faults"]["retries"] == 7


@pytest.mark.parametrize(
    ("policy", "variable", "value"),
    [("jax", "JAX_NUM_PROCESSES", "3"), ("xgboost", "DMLC_NUM_WORKER", "3")],
)
def test_other_policies_tell_their_variables(make: Any, converted: Any, policy: str, variable: str, value: str) -> None:
    """JAX and XGBoost."""
    spec = converted(runtime({policy: {}}, make.template("node")), own(make)).spec["spec"]
    assert spec["framework"] == "custom"
    assert spec["env"][variable] == value


def test_mpi_runtimes_have_launcher_and_workers(make: Any, converted: Any) -> None:
    """The one that Trainer brings along for DeepSpeed: its launcher only starts, all nodes are workers."""
    job = make.train_job()
    job["spec"]["runtimeRef"] = {"name": "deepspeed-distributed"}
    job["spec"]["trainer"]["command"] = ["mpirun", "python", "train.py"]
    spec = converted(job).spec["spec"]
    assert spec["framework"] == "mpi"
    assert spec["mpi"] == {"sshPath": "/home/mpiuser/.ssh"}
    assert spec["roles"]["worker"]["replicas"] == 3
    assert spec["roles"]["worker"]["resources"]["cpu"] == 4
    assert "command" not in spec["roles"]["worker"]
    assert spec["roles"]["launcher"]["command"] == ["mpirun", "python", "train.py"]


def test_a_runtime_that_is_not_there_is_asked_for(make: Any, refusal: Any) -> None:
    """With the command that gets it."""
    assert "kubectl get clustertrainingruntime own -o yaml" in refusal(own(make))


@pytest.mark.parametrize("policy", ["flux"])
def test_flux_is_refused(make: Any, policy: str) -> None:
    """It starts programs by itself."""
    (result,) = make.convert(runtime({policy: {}}, make.template("node")), own(make))
    assert "Flux" in str(result)


def test_torchtune_is_refused(make: Any, refusal: Any) -> None:
    """Its command line is composed by the operator."""
    job = make.train_job()
    job["spec"]["trainer"]["command"] = ["tune", "run"]
    assert "torchtune" in refusal(job)


@pytest.mark.parametrize(
    ("said", "resources", "processes"),
    [
        ("cpu", {"cpu": 3, "amd.com/gpu": 2}, 3),
        ("auto", {"cpu": 3, "amd.com/gpu": 2}, 2),
        ("gpu", {"cpu": 3}, 1),
        (5, {"cpu": 3, "nvidia.com/gpu": 2}, 5),
    ],
)
def test_processes_of_a_node_are_counted_as_in_trainer(
    make: Any, converted: Any, said: Any, resources: dict[str, int], processes: int
) -> None:
    """By GPUs of any vendor, by CPUs, or as said; and the account says that it is kept."""
    job = make.train_job()
    job["spec"]["trainer"].update(numProcPerNode=said, resourcesPerNode={"limits": resources})
    result = converted(job)
    assert result.spec["spec"]["roles"]["worker"]["procs"] == processes
    outcomes = [entry.outcome for entry in result.entries if entry.path == "spec.trainer.numProcPerNode"]
    assert outcomes == ["kept"]
