"""Plain Volcano Jobs: tasks are roles, plugins say how they meet, policies what faults lead to."""

from __future__ import annotations

from typing import Any

import pytest

Template = dict[str, Any]


def pair(
    make: Any, name: str, other: str, *, first: Template | None = None, second: Template | None = None
) -> list[dict[str, Any]]:
    """Two tasks, the templates of which are changed so."""
    return [
        {"name": name, "replicas": 1, "template": make.template(**(first or {}))},
        {"name": other, "replicas": 2, "template": make.template(**(second or {}))},
    ]


def test_tasks_are_roles(make: Any, converted: Any) -> None:
    """With their minima, the gang, the queue, the plugin env's variables, and the policies."""
    spec = converted(make.volcano_job()).spec["spec"]
    assert spec["framework"] == "custom"
    assert {name: role["replicas"] for name, role in spec["roles"].items()} == {"server": 1, "worker": 3}
    assert spec["roles"]["worker"]["min"] == 2
    assert spec["roles"]["worker"]["success"] is True
    assert (spec["minPods"], spec["queue"]) == (3, "research")
    assert spec["env"]["VC_TASK_INDEX"] == "$(KFP_VOLCANO_TASK_INDEX)"
    assert spec["faults"]["evicted"] == "restartJob"
    assert spec["faults"]["retries"] == 5


@pytest.mark.parametrize(
    ("policies", "faults"),
    [
        ([{"event": "PodFailed", "action": "RestartJob"}], {"failed": "restartJob"}),
        ([{"events": ["PodFailed", "PodEvicted"], "action": "AbortJob"}], {"failed": "fail", "evicted": "fail"}),
        ([{"event": "*", "action": "RestartJob"}], {"failed": "restartJob", "evicted": "restartJob"}),
        (
            [{"event": "PodPending", "action": "AbortJob", "timeout": "10m"}],
            {"failed": "retry", "pending": {"after": "10m", "then": "abort"}},
        ),
    ],
)
def test_policies_are_faults(make: Any, converted: Any, policies: Any, faults: dict[str, Any]) -> None:
    """What an event leads to, where a TrainingJob has it."""
    found = converted(make.volcano_job(policies=policies)).spec["spec"]["faults"]
    assert {key: value for key, value in found.items() if key in ("failed", "evicted", "pending")} == faults


@pytest.mark.parametrize(
    "policy", [{"exitCode": 3, "action": "AbortJob"}, {"event": "PodFailed", "action": "RestartTask"}]
)
def test_policies_without_counterpart_are_told(make: Any, converted: Any, policy: Any) -> None:
    """Exit codes, and the restart of parts."""
    result = converted(make.volcano_job(policies=[policy]))
    assert any(entry.path.startswith("spec.policies[0]") and entry.outcome == "lost" for entry in result.entries)


def test_the_plugin_of_pytorch_tells_ranks(make: Any, converted: Any) -> None:
    """Master and workers, alike, are one role."""
    tasks = pair(make, "leader", "worker")
    job = make.volcano_job(tasks=tasks, plugins={"pytorch": ["--master=leader", "--port=2222"]}, minAvailable=3)
    spec = converted(job).spec["spec"]
    assert spec["roles"]["worker"]["replicas"] == 3
    assert (spec["env"]["MASTER_PORT"], spec["env"]["WORLD_SIZE"]) == ("2222", "3")


def test_the_plugin_of_tensorflow_is_the_framework(make: Any, converted: Any) -> None:
    """TF_CONFIG is made for its tasks."""
    job = make.volcano_job(tasks=pair(make, "ps", "worker"), plugins={"tensorflow": []}, minAvailable=3)
    assert converted(job).spec["spec"]["framework"] == "tensorflow"


def test_ssh_between_mpirun_and_sshd_is_mpi(make: Any, converted: Any) -> None:
    """Volcano's own example of MPI: the file of hosts is called otherwise."""
    launcher = ["sh", "-c", "mpiexec --host $(tr '\\n' , < /etc/volcano/mpiworker.host) -np 2 train"]
    tasks = pair(
        make,
        "mpimaster",
        "mpiworker",
        first={"command": launcher, "args": None},
        second={"command": ["sh", "-c", "mkdir -p /run/sshd; /usr/sbin/sshd -D"], "args": None},
    )
    tasks[0]["dependsOn"] = {"name": ["mpiworker"]}
    spec = converted(make.volcano_job(tasks=tasks, plugins={"ssh": [], "svc": []}, minAvailable=2)).spec["spec"]
    assert spec["framework"] == "mpi"
    assert "/etc/volcano/core.host" in spec["roles"]["launcher"]["command"][2]
    assert spec["roles"]["launcher"]["dependsOn"] == ["worker"]
    assert "command" not in spec["roles"]["worker"]


def test_ssh_between_others_is_refused(make: Any, refusal: Any) -> None:
    """Nobody makes keys for them."""
    tasks = [{"name": "all", "replicas": 3, "template": make.template(command=["sh", "-c", "ssh all-1 date"])}]
    assert "spec.plugins.ssh" in refusal(make.volcano_job(tasks=tasks, plugins={"ssh": []}, minAvailable=3))


def test_hosts_of_the_workers_are_found_by_their_new_name(make: Any, converted: Any) -> None:
    """The task of the role worker is called core."""
    tasks = pair(make, "server", "worker", first={"args": ["--peers", "$(VC_WORKER_HOSTS)"]})
    spec = converted(make.volcano_job(tasks=tasks, minAvailable=3)).spec["spec"]
    assert spec["roles"]["server"]["args"] == ["--peers", "$(VC_CORE_HOSTS)"]


def test_a_taken_name_is_given_up(make: Any, converted: Any) -> None:
    """`core`, `elastic` and `coordinator` are tasks of kfp-volcano's own."""
    roles = converted(make.volcano_job(tasks=pair(make, "coordinator", "core"), minAvailable=3)).spec["spec"]["roles"]
    assert list(roles) == ["coordinators", "cores"]


def test_volumes_of_the_job_are_in_all_pods(make: Any, converted: Any, refusal: Any) -> None:
    """Claims that there are; one that the Job would make is refused."""
    spec = converted(make.volcano_job(volumes=[{"mountPath": "/out", "volumeClaimName": "out"}])).spec["spec"]
    assert spec["volumes"]["volume-0"] == {"claim": "out", "mount": "/out"}
    template = {"mountPath": "/out", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}
    assert "spec.volumes[0].volumeClaim" in refusal(make.volcano_job(volumes=[template]))


def test_ray_needs_a_driver(make: Any, refusal: Any, converted: Any) -> None:
    """The head's command is the driver; without one there is nothing to run."""
    tasks = pair(make, "head", "worker")
    job = make.volcano_job(tasks=tasks, plugins={"ray": []}, minAvailable=3)
    assert converted(job).spec["spec"]["framework"] == "ray"
    tasks[0]["template"]["spec"]["containers"][0].pop("command")
    assert "the head has no command" in refusal(make.volcano_job(tasks=tasks, plugins={"ray": []}, minAvailable=3))


def test_numa_alignment_needs_whole_reserved_cpus(make: Any, converted: Any) -> None:
    """Else the kubelet does not align, and the account says so."""
    (aligned, other) = pair(
        make, "a", "b", first={"resources": {"limits": {"cpu": 4, "memory": "8Gi"}}, "volumeMounts": None}
    )
    aligned["topologyPolicy"] = other["topologyPolicy"] = "single-numa-node"
    result = converted(make.volcano_job(tasks=[aligned, other], minAvailable=3))
    assert result.spec["spec"]["roles"]["a"]["placement"] == {"numa": "single-numa-node"}
    assert any(entry.path == "spec.tasks[1].topologyPolicy" and entry.outcome == "lost" for entry in result.entries)
