# SPDX-License-Identifier: Apache-2.0
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


def told(result: Any, path: str) -> list[str]:
    """What the account says of a field."""
    return [f"{entry.outcome} {entry.why}".strip() for entry in result.entries if entry.path == path]


def test_each_argument_of_a_plugin_is_told(make: Any, converted: Any) -> None:
    """As it is, otherwise, or not at all; a plugin that a TrainingJob does not have is lost with its arguments."""
    plugins = {
        "svc": ["--publish-not-ready-addresses=true", "--disable-network-policy", "true", "--novel=1"],
        "ringsconfigmap": ["{}"],
    }
    result = converted(make.volcano_job(plugins=plugins))
    assert told(result, "spec.plugins.svc[0]") == ["kept"]
    assert told(result, "spec.plugins.svc[1]") == ["changed a Job's pods are reached by its own pods alone"]
    assert told(result, "spec.plugins.svc[3]") == ["lost novel is not known to this converter"]
    assert told(result, "spec.plugins.ringsconfigmap") == ["lost no part of a TrainingJob does what this plugin does"]


@pytest.mark.parametrize("port", ["x", "-1", "0", "70000", ""])
def test_a_port_that_is_none_is_refused(make: Any, refusal: Any, port: str) -> None:
    """With the argument's place."""
    job = make.volcano_job(tasks=pair(make, "master", "worker"), plugins={"pytorch": ["--port", port]}, minAvailable=3)
    if port in ("", "-1"):  # an argument without a value
        job["spec"]["plugins"]["pytorch"] = ["--port=" + (port or "true")]
    assert "spec.plugins.pytorch[0]: " in refusal(job)


def test_keys_of_ssh_stay_where_they_were(make: Any, converted: Any) -> None:
    """The folder of keys that the plugin ssh is given."""
    tasks = pair(make, "launch", "work", first={"command": ["mpirun", "x"]}, second={"command": ["sshd", "-D"]})
    plugins = {"ssh": ["--ssh-key-file-path=/home/me/.ssh", "--ssh-port=22"], "svc": []}
    result = converted(make.volcano_job(tasks=tasks, plugins=plugins, minAvailable=2))
    assert result.spec["spec"]["mpi"] == {"sshPath": "/home/me/.ssh"}
    assert told(result, "spec.plugins.ssh[1]") == ["changed is 2222"]


def test_hosts_of_pods_are_found_by_their_new_names(make: Any, converted: Any) -> None:
    """Those of the leader; of others the account says that they are called otherwise now."""
    environment = [
        {"name": "ROOT", "value": "bert-head-0.bert:9000"},
        {"name": "PEER", "value": "bert-server-0.bert"},
        {"name": "OTHER", "value": "albert-head-0.albert"},
    ]
    tasks = pair(make, "head", "server", second={"env": environment})
    result = converted(make.volcano_job(tasks=tasks, minAvailable=3))
    env = result.spec["spec"]["roles"]["server"]["env"]
    assert env["ROOT"] == "$(KFP_VOLCANO_LEADER):9000"
    assert env["OTHER"] == "albert-head-0.albert"
    lost = [entry.why for entry in result.entries if entry.outcome == "lost" and entry.path == "spec.roles.server"]
    assert lost == ["the program refers to the pod bert-server-0.bert, which will be called otherwise"]


def test_long_names_of_tasks_are_cut(make: Any, converted: Any) -> None:
    """So that pods have names; what refers to them is changed with them."""
    names = ("a-task-with-a-long-name", "a-task-with-a-long-name-too")
    tasks = pair(make, *names, second={"args": ["$(VC_A_TASK_WITH_A_LONG_NAME_HOSTS)"]})
    spec = converted(make.volcano_job(tasks=tasks, minAvailable=3)).spec["spec"]
    first, second = spec["roles"]
    assert first != second
    assert max(len(first), len(second)) <= 15
    variable = f"VC_{first.upper().replace('-', '_')}_HOSTS"
    assert spec["roles"][second]["args"] == [f"$({variable})"]


@pytest.mark.parametrize(("least", "outcome"), [(2, "kept"), (3, "kept"), (4, "changed"), (0, "changed")])
def test_a_minimum_is_kept_or_told(make: Any, converted: Any, least: int, outcome: str) -> None:
    """From one pod of the task to all of them."""
    tasks = pair(make, "a", "b")
    tasks[1]["replicas"], tasks[1]["minAvailable"] = 3, least
    result = converted(make.volcano_job(tasks=tasks, minAvailable=2))
    assert [words.split()[0] for words in told(result, "spec.tasks[1].minAvailable")] == [outcome]


def test_tries_of_several_tasks_are_the_most(make: Any, converted: Any) -> None:
    """One number for all; the others are told."""
    tasks = pair(make, "a", "b")
    tasks[1]["maxRetry"] = 7
    result = converted(make.volcano_job(tasks=tasks, minAvailable=2))
    assert result.spec["spec"]["faults"]["retries"] == 7
    assert told(result, "spec.tasks[1].maxRetry") == ["kept"]
    assert told(result, "spec.maxRetry") == ["changed is 7 for all: the largest, from 1 to 1000"]


def test_job_templates_are_jobs(make: Any, converted: Any) -> None:
    """JobFlow's templates hold the spec of a Job."""
    kinds = make.every_kind()
    assert converted(kinds["volcano-template"]).spec == converted(kinds["volcano"]).spec


def test_cron_jobs_are_the_jobs_that_they_make(make: Any, converted: Any) -> None:
    """Their schedule is that of a recurring run; Kubernetes' own CronJob is no training job."""
    kinds = make.every_kind()
    result = converted(kinds["volcano-cron"])
    assert result.spec["spec"] == converted(kinds["volcano"]).spec["spec"]
    assert result.spec["metadata"]["labels"] == {"team": "nlp", "a": "b", "app": "bert"}
    lost = {entry.path: entry.remedy for entry in result.entries if entry.outcome == "lost"}
    assert "recurring run" in lost["spec.schedule"]
    (refused,) = make.convert({**kinds["volcano-cron"], "apiVersion": "batch/v1"})
    assert "holds no training job, but CronJob of batch/v1" in str(refused)


def test_annotations_of_volcanos_that_a_user_may_set_are_kept(make: Any, converted: Any) -> None:
    """The others are lost, with the reason."""
    annotations = {"volcano.sh/revocable-zone": "*", "volcano.sh/preemptable": "true", "volcano.sh/own": "x"}
    job = make.volcano_job()
    job["metadata"]["annotations"] = annotations
    result = converted(job)
    assert result.spec["metadata"]["annotations"]["volcano.sh/revocable-zone"] == "*"
    assert "may be taken" in told(result, 'metadata.annotations["volcano.sh/preemptable"]')[0]
    assert "Volcano sets" in told(result, 'metadata.annotations["volcano.sh/own"]')[0]
