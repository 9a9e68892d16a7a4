# SPDX-License-Identifier: Apache-2.0
"""PyTorchJobs: by torchrun's rendezvous where torchrun starts the program, else with the operator's variables."""

from __future__ import annotations

from typing import Any

import pytest


def specs(make: Any, *, worker: dict[str, Any] | None = None, count: int = 3, **both: Any) -> dict[str, Any]:
    """A master and workers."""
    return {
        "Master": make.replicas(1, container="pytorch", **both),
        "Worker": make.replicas(count, container="pytorch", **{**both, **(worker or {})}),
    }


def test_a_plain_program_is_started_by_torchrun(make: Any, converted: Any) -> None:
    """Master and workers are one role of fixed size, one process a pod, as with the operator."""
    found = converted(make.pytorch()).spec["spec"]
    assert found["framework"] == "pytorch"
    assert found["elasticity"]["strategy"] == "fixed"
    assert list(found["roles"]) == ["worker"]
    assert found["roles"]["worker"]["replicas"] == 4
    assert found["roles"]["worker"]["procs"] == 1


@pytest.mark.parametrize(
    "command", [["torchrun", "train.py"], ["/usr/bin/python3", "-m", "torch.distributed.run", "train.py"]]
)
def test_torchrun_keeps_its_processes(make: Any, converted: Any, command: list[str]) -> None:
    """`nprocPerNode` is procs."""
    job = make.pytorch(pytorchReplicaSpecs=specs(make, command=command), nprocPerNode="2")
    found = converted(job).spec["spec"]
    assert found["framework"] == "pytorch"
    assert found["command"] == command
    assert found["roles"]["worker"]["procs"] == 2


@pytest.mark.parametrize(
    "command",
    [
        None,
        ["bash", "-c", "torchrun --node_rank=$RANK --master_addr=${MASTER_ADDR} train.py"],
        ["python", "train.py", "--init=tcp://$(MASTER_ADDR):$(MASTER_PORT)"],
        ["accelerate", "launch", "train.py"],
    ],
)
def test_a_program_with_the_operators_variables_gets_them(make: Any, converted: Any, command: Any) -> None:
    """An image's entry point may read them too: nothing can be put before it."""
    job = make.pytorch(pytorchReplicaSpecs=specs(make, command=command), nprocPerNode="4")
    found = converted(job).spec["spec"]
    assert found["framework"] == "custom"
    assert found["env"]["RANK"] == "$(KFP_VOLCANO_TASK_INDEX)"
    assert found["env"]["WORLD_SIZE"] == "16"
    assert found["env"]["MASTER_ADDR"] == "$(KFP_VOLCANO_LEADER)"
    assert found["env"]["PET_NNODES"] == "4"


def test_workers_that_differ_are_told_their_rank_by_a_shell(make: Any, converted: Any) -> None:
    """The master's is 0, theirs begin at 1; the master's end is the job's."""
    roles = converted(make.pytorch(pytorchReplicaSpecs=specs(make, worker={"args": ["--w"]}))).spec["spec"]["roles"]
    assert roles["master"]["env"]["RANK"] == "0"
    assert roles["master"]["success"] is True
    assert roles["worker"]["command"][:2] == ["/bin/sh", "-c"]
    assert "RANK=$((KFP_VOLCANO_TASK_INDEX + 1))" in roles["worker"]["command"][2]
    assert roles["worker"]["command"][4:] == ["python", "train.py"]


def test_workers_whose_command_only_the_image_knows_are_roles_of_their_own(make: Any, converted: Any) -> None:
    """Each knows its rank; too many of them are refused."""
    job = make.pytorch(pytorchReplicaSpecs=specs(make, command=None, worker={"args": ["--w"]}))
    roles = converted(job).spec["spec"]["roles"]
    assert {name: role["env"]["RANK"] for name, role in roles.items()} == {
        "master": "0",
        "worker-1": "1",
        "worker-2": "2",
        "worker-3": "3",
    }


def test_too_many_unlike_workers_are_refused(make: Any, refusal: Any) -> None:
    """A role for each of a hundred workers is no spec to live with."""
    job = make.pytorch(pytorchReplicaSpecs=specs(make, count=100, command=None, worker={"args": ["--w"]}), policy={})
    assert "its 100 workers differ from the master" in refusal(job)


def test_an_elastic_job_may_be_resized(make: Any, converted: Any) -> None:
    """The range, the restarts and the settings of the rendezvous stay; what kfp-volcano says itself is told."""
    policy = {
        "minReplicas": 2,
        "maxReplicas": 6,
        "maxRestarts": 10,
        "rdzvBackend": "etcd",
        "rdzvConf": [{"key": "timeout", "value": "600"}],
        "metrics": [{"type": "Resource"}],
    }
    result = converted(make.pytorch(elasticPolicy=policy, policy={}))
    found = result.spec["spec"]
    assert found["elasticity"]["strategy"] == "restart"
    assert found["roles"]["worker"]["replicas"] == {"min": 2, "max": 6, "initial": 4}
    assert found["faults"]["retries"] == 10
    assert found["env"]["PET_RDZV_CONF"] == "timeout=600"
    outcomes = {entry.path: entry.outcome for entry in result.entries}
    assert outcomes["spec.elasticPolicy.metrics"] == "lost"
    assert outcomes["spec.elasticPolicy.rdzvBackend"] == "changed"


@pytest.mark.parametrize(
    ("command", "why"),
    [(None, "has no command"), (["sh", "-c", "torchrun --nnodes=$PET_NNODES train.py"], "stale after a resize")],
)
def test_an_elastic_program_that_cannot_be_started_anew_is_refused(
    make: Any, refusal: Any, command: Any, why: str
) -> None:
    """A resize starts the program with another size: kfp-volcano has to know it, and it must not know the old one."""
    job = make.pytorch(pytorchReplicaSpecs=specs(make, command=command), elasticPolicy={"maxReplicas": 8})
    assert why in refusal(job)


def test_the_masters_host_is_the_leaders(make: Any, converted: Any) -> None:
    """The pods are called otherwise in each run."""
    command = ["python", "train.py", "--store=tcp://bert-master-0.nlp.svc:29500", "--peer=bert-worker-1"]
    result = converted(make.pytorch(pytorchReplicaSpecs=specs(make, command=command)))
    assert result.spec["spec"]["command"][2] == "--store=tcp://$(KFP_VOLCANO_LEADER):29500"
    assert any("bert-worker-1" in entry.why and entry.outcome == "lost" for entry in result.entries)


def test_the_run_policy_is_kept(make: Any, converted: Any) -> None:
    """Queue, priority, gang, limits of time and of restarts."""
    found = converted(make.pytorch()).spec["spec"]
    assert (found["queue"], found["priority"]) == ("research", "high")
    assert found["roles"]["worker"]["min"] == 2
    assert found["faults"] == {"keepFor": "1h", "timeout": "24h", "retries": 3, "failed": "retry"}


def test_the_rank_a_user_sets_gives_way_as_with_the_operator(make: Any, converted: Any) -> None:
    """The operator's variables come last in the container, and so win."""
    env = [{"name": "WORLD_SIZE", "value": "1"}]
    result = converted(make.pytorch(pytorchReplicaSpecs=specs(make, command=None, env=env)))
    assert result.spec["spec"]["env"]["WORLD_SIZE"] == "4"
    assert any("overridden" in entry.why for entry in result.entries)


def test_restart_policies_of_roles_that_become_one_all_count(make: Any, converted: Any) -> None:
    """Master and workers alike, but for what becomes of their failures."""
    specs = {"Master": make.replicas(1, "Never"), "Worker": make.replicas(3, "OnFailure")}
    result = converted(make.job("PyTorchJob", {"pytorchReplicaSpecs": specs}))
    assert result.spec["spec"]["faults"]["failed"] == "retry"
    outcomes = {entry.path: entry.outcome for entry in result.entries}
    assert outcomes["spec.pytorchReplicaSpecs.Master.restartPolicy"] == "changed"
    assert outcomes["spec.pytorchReplicaSpecs.Worker.restartPolicy"] == "kept"


@pytest.mark.parametrize(
    ("resource", "processes"), [("nvidia.com/gpu", None), ("amd.com/gpu", 4), ("google.com/tpu", None)]
)
def test_a_process_for_each_gpu_of_any_vendor(make: Any, converted: Any, resource: str, processes: int | None) -> None:
    """Where torchrun is left to count them; of NVIDIA's a TrainingJob counts them itself."""
    resources = {"limits": {"cpu": 8, "memory": "32Gi", resource: 4}}
    worker = make.replicas(2, resources=resources, command=["torchrun", "train.py"])
    spec = converted(make.job("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": worker}, "nprocPerNode": "auto"})).spec
    assert spec["spec"]["roles"]["worker"].get("procs") == processes


def test_restarts_of_torchrun_count_before_the_jobs(make: Any, converted: Any) -> None:
    """maxRestarts is for each worker's program, as retries are."""
    policy = {"minReplicas": 2, "maxReplicas": 6, "maxRestarts": 10}
    result = converted(make.pytorch(elasticPolicy=policy))
    assert result.spec["spec"]["faults"]["retries"] == 10
    told = {entry.path: entry.outcome for entry in result.entries}
    assert told["spec.elasticPolicy.maxRestarts"] == "kept"
    assert told["spec.runPolicy.backoffLimit"] == "changed"
