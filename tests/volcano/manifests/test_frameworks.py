# SPDX-License-Identifier: Apache-2.0
"""What each framework is compiled to: environment, commands, and GPUs with the network between them."""

from __future__ import annotations

import copy
import json

import pytest

from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.job import job_manifest

ROLES = {
    "pytorch": {"worker": {"replicas": 2}},
    "tensorflow": {"chief": {"replicas": 1}, "worker": {"replicas": 2}, "ps": {"replicas": 1}},
    "mpi": {"launcher": {"replicas": 1}, "worker": {"replicas": 2}},
    "ray": {"head": {"replicas": 1}, "worker": {"replicas": 2}},
    "custom": {"master": {"replicas": 1}, "worker": {"replicas": 2}},
}
DEVICES = {"cpu": 16, "memory": "64Gi", "gpu": 4, "rdma": 2, "rdmaResource": "rdma/ib", "shm": "32Gi"}
NCCL = {"NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO"}


def spec(framework, roles=None, **more):
    """A fixed Job whose workers have GPUs and NICs."""
    roles = copy.deepcopy(roles or ROLES[framework])
    roles["worker"]["resources"] = DEVICES
    value = {"framework": framework, "image": "x", "command": ["train"], "queue": "q", "roles": roles, "env": NCCL}
    value |= {"elasticity": {"strategy": "fixed"}, **more}
    return {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "a"}, "spec": value}


def tasks(value):
    """The pods of each task of a Job called `a-1`."""
    job = training_job(value)
    manifest = job_manifest(job, name="a-1", run_id="r", step="s", workers=job.workers.replicas.initial)
    return {task["name"]: task["template"]["spec"] for task in manifest["spec"]["tasks"]}


def env(pod, kind="containers"):
    """The plain variables of a pod's first container."""
    return {entry["name"]: entry["value"] for entry in pod[kind][0]["env"] if "value" in entry}


@pytest.mark.parametrize("framework", ROLES)
def test_workers_get_their_gpus_and_the_network_between_them(framework):
    """Devices are limits, memory may be pinned and shared, NCCL's settings are the user's, also in the preflight."""
    pod = tasks(spec(framework, faults={"preflight": ["nvidia-smi", "-L"]}))["core"]
    for kind in ("containers", "initContainers"):
        container = pod[kind][0]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "4", "rdma/ib": "2"}
        assert container["resources"]["requests"].items() >= container["resources"]["limits"].items()
        assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
        assert any(mount["mountPath"] == "/dev/shm" for mount in container["volumeMounts"])
        assert env(pod, kind).items() >= NCCL.items()
    shared = next(volume for volume in pod["volumes"] if volume["name"] == "kfp-volcano-shm")
    assert shared["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}


@pytest.mark.parametrize("framework", [name for name in ROLES if name != "pytorch"])
def test_who_leads_has_no_devices(framework):
    """Chief, launcher, head and master ask for cpu and memory only."""
    leader = next(name for name in ROLES[framework] if name != "worker")
    container = tasks(spec(framework))[leader]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}


def test_torchrun_starts_a_process_for_each_gpu():
    """It learns all of that from its environment; the number of pods may have a least."""
    told = env(tasks(spec("pytorch"))["core"])
    assert (
        told.items()
        >= {
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "4",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": "a-1-core-0.a-1:29400",
            "PET_RDZV_ID": "a-1",
        }.items()
    )
    told = env(tasks(spec("pytorch", {"worker": {"replicas": 4, "min": 3, "procs": 1}}))["core"])
    assert (told["PET_NNODES"], told["PET_NPROC_PER_NODE"]) == ("3:4", "1")


@pytest.mark.parametrize(("command", "starter"), [("train", 4), ("torchrun", 0)])
def test_a_live_worker_has_a_torchrun_of_its_own(command, starter):
    """It starts a process for each GPU, meets no other pod, and is the user's where the user starts one."""
    roles = {"worker": {"replicas": {"min": 2, "max": 4}}}
    more = {"elasticity": {"strategy": "live"}, "checkpoint": {"volume": "v"}, "command": [command]}
    pod = tasks(spec("pytorch", roles, **more))["elastic"]
    told = env(pod)
    expected = {"PET_NPROC_PER_NODE": "4", "PET_STANDALONE": "1", "PET_LOCAL_ADDR": "$(KFP_VOLCANO_POD_IP)"}
    assert told.items() >= expected.items()
    assert not {"PET_NNODES", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"} & told.keys()
    words = pod["containers"][0]["command"]
    assert words[:starter] == ["python", "-m", "kfp_volcano.elastic.runtime", "--"][:starter]
    assert words[starter:] == [command]
    roles["worker"]["procs"] = 1
    alone = tasks(spec("pytorch", roles, **more))["elastic"]
    assert alone["containers"][0]["command"] == [command]
    assert not any(name.startswith("PET_") for name in env(alone))


def test_mpi_has_a_slot_for_each_gpu():
    """The launcher's hosts are the workers, by name."""
    told = env(tasks(spec("mpi"))["launcher"])
    assert told["KFP_VOLCANO_HOSTS"] == "a-1-core-0.a-1:4,a-1-core-1.a-1:4"


def test_nodes_of_ray_have_what_their_pods_ask_for():
    """CPUs and GPUs of head and workers are those of the containers; all find the head."""
    pods = tasks(spec("ray"))
    numbers = {task: pods[task]["containers"][0]["command"][4:6] for task in ("head", "core")}
    assert numbers == {"head": ["1", "0"], "core": ["16", "4"]}
    assert {env(pod)["KFP_VOLCANO_HEAD"] for pod in pods.values()} == {"a-1-head-0.a-1:6379"}


def test_an_evaluator_stands_outside_of_tensorflows_cluster():
    """All have the same cluster of chief, workers and servers, and their own place, which Kubernetes puts in."""
    pods = tasks(spec("tensorflow", {**ROLES["tensorflow"], "evaluator": {"replicas": 1}}))
    for task, pod in pods.items():
        told = json.loads(env(pod)["TF_CONFIG"].replace("$(KFP_VOLCANO_TASK_INDEX)", "0"))
        assert told == {
            "cluster": {
                "chief": ["a-1-chief-0.a-1:2222"],
                "worker": ["a-1-core-0.a-1:2222", "a-1-core-1.a-1:2222"],
                "ps": ["a-1-ps-0.a-1:2222"],
            },
            "task": {"type": "worker" if task == "core" else task, "index": 0},
        }


def test_a_pod_that_is_alone_has_no_cluster():
    """MirroredStrategy takes the GPUs of its pod; a configuration of one worker would be waited for."""
    assert "TF_CONFIG" not in env(tasks(spec("tensorflow", {"worker": {"replicas": 1}}))["core"])


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "mpi", "custom"])
def test_nothing_of_an_elastic_pods_environment_tells_a_size(framework):
    """What the pod was made with is stale after a resize: the agent's command learns the size from the coordinator."""
    roles = copy.deepcopy(ROLES[framework])
    roles["worker"]["replicas"] = {"min": 2, "max": 4, "initial": 3}
    value = spec(framework, roles, elasticity={"strategy": "restart"})
    for task in ("core", "elastic"):
        told = env(tasks(value)[task])
        assert not {"TF_CONFIG", "PET_NNODES", "KFP_VOLCANO_WORKERS", "KFP_VOLCANO_HOSTS", "WORLD_SIZE"} & told.keys()
        assert told["KFP_VOLCANO_LEAST"] == "2"
