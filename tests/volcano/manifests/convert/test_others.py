# SPDX-License-Identifier: Apache-2.0
"""TFJobs, MPIJobs, XGBoostJobs, PaddleJobs and JAXJobs."""

from __future__ import annotations

from typing import Any

import pytest


def test_tensorflow_roles_keep_their_meaning(make: Any, converted: Any) -> None:
    """Chief (or Master), workers, parameter servers and evaluator; AllWorkers is success of the workers."""
    roles = converted(make.every_kind()["tensorflow"]).spec["spec"]["roles"]
    assert {name: role["replicas"] for name, role in roles.items()} == {
        "chief": 1,
        "worker": 3,
        "ps": 2,
        "evaluator": 1,
    }
    assert roles["worker"]["success"] is True


def test_a_gang_of_several_roles_has_a_pod_of_each(make: Any, converted: Any) -> None:
    """`minAvailable` is minPods, and each role may start with one."""
    job = make.every_kind()["tensorflow"]
    job["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] = 5
    spec = converted(job).spec["spec"]
    assert spec["minPods"] == 5
    assert {name: role.get("min") for name, role in spec["roles"].items()} == {
        "chief": None,
        "worker": 1,
        "ps": 1,
        "evaluator": None,
    }


def test_two_chiefs_are_refused(make: Any, refusal: Any) -> None:
    """Chief and Master are the same."""
    job = make.job("TFJob", {"tfReplicaSpecs": {"Chief": make.replicas(1), "Master": make.replicas(1)}})
    assert "Chief and Master" in refusal(job)


def test_an_unknown_type_of_replica_is_refused(make: Any, refusal: Any) -> None:
    """Pods that would be left out are no detail."""
    job = make.job("TFJob", {"tfReplicaSpecs": {"Worker": make.replicas(1), "Gossip": make.replicas(1)}})
    assert "spec.tfReplicaSpecs.Gossip" in refusal(job)


def test_mpi_workers_are_started_by_sshd(make: Any, converted: Any) -> None:
    """Slots, the folder of the keys; a command that is sshd itself is left out."""
    spec = converted(make.every_kind()["mpi-v2"]).spec["spec"]
    assert spec["framework"] == "mpi"
    assert spec["mpi"] == {"sshPath": "/home/mpiuser/.ssh"}
    assert spec["roles"]["launcher"]["command"] == ["mpirun", "train"]
    assert "command" not in spec["roles"]["worker"]
    assert "args" not in spec["roles"]["worker"]


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (None, ["mpirun", "-n", "2", "train"], ["mpirun", "-n", "2", "train"]),
        (["mpirun"], ["--hostfile", "/etc/mpi/hostfile", "train"], ["mpirun", "train"]),
        (["mpirun", "--hostfile=/etc/mpi/hostfile", "train"], None, ["mpirun", "train"]),
        (
            [
                "sh",
                "-c",
                "date; mpirun -n 2 \\\n  -hostfile /etc/mpi/hostfile \\\n  train && mpiexec -f /etc/mpi/hostfile date",
            ],
            None,
            ["sh", "-c", "date; mpirun -n 2 \\\n  \\\n  train && mpiexec date"],
        ),
        (
            ["horovodrun"],
            [
                *("-np", "2", "--min-np", "1", "--max-np", "3"),
                *("--host-discovery-script", "/etc/mpi/discover_hosts.sh", "python", "train.py"),
            ],
            ["horovodrun", "-H", "$(KFP_VOLCANO_HOSTS)", "-np", "2", "python", "train.py"],
        ),
    ],
)
def test_a_launcher_finds_its_workers_otherwise(
    make: Any, converted: Any, command: Any, args: list[str] | None, expected: list[str]
) -> None:
    """By the environment, not by the operator's hostfile or script."""
    launcher = make.replicas(1, command=command, args=args)
    job = make.job("MPIJob", {"mpiReplicaSpecs": {"Launcher": launcher, "Worker": make.replicas(2)}})
    assert converted(job).spec["spec"]["roles"]["launcher"]["command"] == expected


@pytest.mark.parametrize(
    ("command", "args", "why"),
    [
        (None, ["--epochs", "3"], "the launcher has no command"),
        (["sh", "-c", "mpirun date; deepspeed --hostfile /etc/mpi/hostfile train"], [], "the launcher reads /etc/mpi/"),
        (["sh", "-c", "test -f /etc/mpi/hostfile && mpirun train"], [], "the launcher reads /etc/mpi/"),
    ],
)
def test_a_launcher_that_would_not_find_them_is_refused(
    make: Any, refusal: Any, command: Any, args: list[str], why: str
) -> None:
    """In a shell's script only options of mpirun's can be changed safely."""
    launcher = make.replicas(1, command=command, args=args)
    job = make.job("MPIJob", {"mpiReplicaSpecs": {"Launcher": launcher, "Worker": make.replicas(2)}})
    assert why in refusal(job)


def test_a_launcher_that_works_too_is_a_worker_more(make: Any, converted: Any) -> None:
    """As many processes as before; the launcher, which only starts, holds no GPUs beside that worker's."""
    job = make.every_kind()["mpi-v2"]
    assert converted(job).spec["spec"]["roles"]["launcher"]["resources"]["gpu"] == 2
    job["spec"]["runLauncherAsWorker"] = True
    roles = converted(job).spec["spec"]["roles"]
    assert roles["worker"]["replicas"] == 3
    assert not {"gpu", "rdma"} & {*roles["launcher"]["resources"]}


def test_xgboost_workers_know_master_and_ranks(make: Any, converted: Any) -> None:
    """Pods that are alike are one role, whose index is their rank."""
    spec = converted(make.every_kind()["xgboost"]).spec["spec"]
    assert spec["framework"] == "custom"
    assert spec["roles"]["worker"]["replicas"] == 3
    assert spec["env"]["MASTER_ADDR"] == "$(KFP_VOLCANO_LEADER)"
    assert spec["env"]["RANK"] == "$(KFP_VOLCANO_TASK_INDEX)"
    assert spec["env"]["WORLD_SIZE"] == "3"


def test_lightgbm_is_refused(make: Any, refusal: Any) -> None:
    """It is an XGBoostJob too, but needs the list of its workers."""
    both = {"Master": make.replicas(1, image="lightgbm:1"), "Worker": make.replicas(2, image="lightgbm:1")}
    assert "WORKER_ADDRS" in refusal(make.job("XGBoostJob", {"xgbReplicaSpecs": both}))


def test_a_port_of_the_operators_name_is_the_one_told(make: Any, converted: Any) -> None:
    """Where the container lists it; listing it does nothing else."""
    ports = [{"name": "xgboostjob-port", "containerPort": 9991}]
    both = {
        "Master": make.replicas(1, container="xgboost", ports=ports),
        "Worker": make.replicas(1, container="xgboost"),
    }
    both["Worker"]["template"]["spec"]["containers"][0].pop("ports")
    spec = converted(make.job("XGBoostJob", {"xgbReplicaSpecs": both})).spec["spec"]
    assert spec["env"]["MASTER_PORT"] == "9991"
    assert list(spec["roles"]) == ["worker"]


def test_paddle_meets_at_the_leader(make: Any, converted: Any) -> None:
    """Collective training has workers alone, training with parameter servers a master; its size stays."""
    result = converted(make.every_kind()["paddle"])
    assert result.spec["spec"]["env"]["PADDLE_MASTER"] == "$(KFP_VOLCANO_LEADER):36543"
    assert any(entry.path == "spec.elasticPolicy.maxReplicas" and entry.outcome == "lost" for entry in result.entries)
    both = {"Master": make.replicas(1), "Worker": make.replicas(2)}
    roles = converted(make.job("PaddleJob", {"paddleReplicaSpecs": both})).spec["spec"]["roles"]
    assert roles["master"]["env"] == {"PADDLE_SERVER_NUM": "1"}
    assert roles["worker"]["env"] == {"PADDLE_TRAINER_NUM": "1"}


def test_jax_processes_know_their_coordinator(make: Any, converted: Any) -> None:
    """By the operator's names, and by those that JAX reads itself."""
    env = converted(make.every_kind()["jax"]).spec["spec"]["env"]
    assert env["COORDINATOR_ADDRESS"] == "$(KFP_VOLCANO_LEADER)"
    assert env["JAX_COORDINATOR_ADDRESS"] == "$(KFP_VOLCANO_LEADER):6666"
    assert env["NUM_PROCESSES"] == env["JAX_NUM_PROCESSES"] == "2"


@pytest.mark.parametrize(
    ("restarts", "limit", "failed"),
    [("Never", None, "fail"), ("Always", None, "retry"), ("ExitCode", 2, "retry"), ("OnFailure", 0, "fail")],
)
def test_a_failure_leads_to_what_the_restart_policy_says(
    make: Any, converted: Any, restarts: str, limit: int | None, failed: str
) -> None:
    """And to nothing more where the limit of restarts is 0."""
    policy = {} if limit is None else {"backoffLimit": limit}
    job = make.job("JAXJob", {"jaxReplicaSpecs": {"Worker": make.replicas(2, restarts)}, "runPolicy": policy})
    assert converted(job).spec["spec"]["faults"]["failed"] == failed


def test_containers_beside_the_training_get_no_variables(make: Any, converted: Any) -> None:
    """Where one of them refers to the operator's, the account says so."""
    template = make.template("jax")
    template["spec"]["initContainers"][0]["command"] = ["sh", "-c", "echo $JAX_PROCESS_ID"]
    worker = {"replicas": 2, "template": template}
    result = converted(make.job("JAXJob", {"jaxReplicaSpecs": {"Worker": worker}}))
    lost = [entry.why for entry in result.entries if entry.outcome == "lost"]
    assert "the container fetch refers to variables that only the training container gets" in lost
