# SPDX-License-Identifier: Apache-2.0
"""Pods of several containers on the embedded cluster: their order, their status, their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Manifest
    from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster

    Until = Callable[..., list[Manifest]]

MOUNTS = [{"name": "shared", "mountPath": "/shared"}, {"name": "gate", "mountPath": "/gate"}]
VOLUMES = [
    {"name": "shared", "emptyDir": {}},
    {"name": "gate", "persistentVolumeClaim": {"claimName": "gate"}},
]
GATE = "while [ ! -e /gate/open ]; do sleep 0.05; done"
FOREVER = "sleep 600 >/dev/null & wait"  # a shell loses signals that come while it starts a program


def shell(name: str, script: str, **more: Any) -> Manifest:
    """A container that shares /shared with the others of its pod, and /gate with the test."""
    return {"name": name, "image": "unused", "command": ["sh", "-c", script], "volumeMounts": MOUNTS, **more}


class Pods:
    """The pod `job-core-0`."""

    def __init__(self, cluster: EmbeddedCluster, jobs: Any, until: Until) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._until = until

    def start(self, containers: list[Manifest], **spec: Any) -> None:
        """Create it, in a Job of its own."""
        task = self._jobs.task("core", 1, ["true"], gpus=0, volumes=VOLUMES, **spec)
        task["template"]["spec"]["containers"] = containers
        self._cluster.create(self._jobs.job("job", [task]))

    def until(self, condition: Callable[[Manifest], object]) -> Manifest:
        """The pod once it is so."""
        found = self._until(
            self._cluster,
            "Pod",
            self._jobs.namespace,
            lambda found: found and "status" in found[0] and condition(found[0]),
        )
        return found[0]

    def running(self, *containers: str) -> Manifest:
        """The pod once these of its containers run."""
        return self.until(lambda pod: all(states(pod).get(each) == "running" for each in containers))

    def ended(self) -> Manifest:
        """The pod once it has ended."""
        return self.until(lambda pod: pod["status"].get("phase") in {"Succeeded", "Failed"})

    def open_gate(self) -> None:
        """Let those go on that wait for it."""
        folder = self._cluster.volume(self._jobs.namespace, "gate")
        assert folder
        (folder / "open").touch()

    def delete(self) -> None:
        """Delete it with its Job; returns when it is gone."""
        self._cluster.delete("Job", "job", self._jobs.namespace)
        self._until(self._cluster, "Pod", self._jobs.namespace, lambda found: not found)

    def printed(self) -> list[str]:
        """The lines of all its containers, in the order in which they came."""
        return self._cluster.logs("job-core-0", self._jobs.namespace)[0].splitlines()


@pytest.fixture
def pods(embedded: EmbeddedCluster, jobs: Any, until: Until) -> Pods:
    return Pods(embedded, jobs, until)


def statuses(pod: Manifest) -> dict[str, Manifest]:
    status = pod["status"]
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return {each["name"]: each for each in containers}


def states(pod: Manifest) -> dict[str, str]:
    return {name: next(iter(status["state"])) for name, status in statuses(pod).items()}


def restarts(pod: Manifest, container: str) -> int:
    return int(statuses(pod).get(container, {}).get("restartCount", 0))


def conditions(pod: Manifest) -> dict[str, str]:
    return {each["type"]: each["status"] for each in pod["status"]["conditions"]}


def test_an_init_container_that_fails_is_started_again_until_it_succeeds(pods: Pods) -> None:
    """The pod is Pending until then and its containers wait; what is left in a shared folder is there for them."""
    flaky = f"[ -e /shared/failed ] || {{ touch /shared/failed; exit 3; }}; {GATE}; echo two >> /shared/words"
    before = [shell("first", "echo one >> /shared/words"), shell("second", flaky)]
    pods.start([shell("main", "cat /shared/words")], initContainers=before)
    waiting = pods.until(lambda pod: restarts(pod, "second") == 1 and states(pod)["second"] == "running")
    assert waiting["status"]["phase"] == "Pending"
    assert states(waiting) == {"first": "terminated", "second": "running", "main": "waiting"}
    assert statuses(waiting)["second"]["lastState"]["terminated"]["exitCode"] == 3
    assert conditions(waiting).items() >= {"Initialized": "False", "Ready": "False"}.items()
    pods.open_gate()
    done = pods.ended()
    assert done["status"]["phase"] == "Succeeded"
    assert conditions(done).items() >= {"Initialized": "True", "Ready": "False"}.items()
    assert pods.printed() == ["one", "two"]


def test_where_nothing_is_started_again_a_failed_init_container_fails_its_pod(pods: Pods) -> None:
    """`restartPolicy: Never`: neither the next init container nor the containers start; its last words are kept."""
    failing = shell("check", "echo fine; echo no device >&2; exit 9", terminationMessagePolicy="FallbackToLogsOnError")
    pods.start(
        [shell("main", "echo main")], initContainers=[failing, shell("next", "echo next")], restartPolicy="Never"
    )
    pod = pods.ended()
    assert pod["status"]["phase"] == "Failed"
    assert states(pod) == {"check": "terminated", "next": "waiting", "main": "waiting"}
    ended = statuses(pod)["check"]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (9, "fine\nno device\n")
    assert pods.printed() == ["fine", "no device"]


def test_the_containers_of_a_pod_run_at_once(pods: Pods) -> None:
    """Each waits for the other; the pod is Ready when both run, and ends when both have."""
    meet = "echo > /shared/$ME; while [ ! -e /shared/$YOU ]; do sleep 0.05; done"

    def container(me: str, you: str, then: str) -> Manifest:
        env = [{"name": "ME", "value": me}, {"name": "YOU", "value": you}]
        return shell(me, f"{meet}; {then}", env=env)

    pods.start([container("b", "a", GATE), container("a", "b", "exit 0")], restartPolicy="Never")
    pod = pods.until(lambda pod: states(pod) == {"a": "terminated", "b": "running"})
    assert pod["status"]["phase"] == "Running"
    pods.open_gate()
    pod = pods.ended()
    assert pod["status"]["phase"] == "Succeeded"
    assert list(statuses(pod)) == ["a", "b"]


@pytest.mark.parametrize(("policy", "again"), [("Never", 0), ("OnFailure", 1)])
def test_one_container_that_fails_leaves_the_others_alone(pods: Pods, policy: str, again: int) -> None:
    """It is started again as the policy says, and fails the pod only when it is not."""
    flaky = "[ -e /shared/failed ] && exit 0; touch /shared/failed; exit 5"
    pods.start([shell("flaky", flaky), shell("steady", GATE)], restartPolicy=policy)
    pod = pods.until(lambda pod: states(pod) == {"flaky": "terminated", "steady": "running"})
    assert pod["status"]["phase"] == "Running"
    assert statuses(pod)["flaky"]["restartCount"] == again
    assert statuses(pod)["steady"]["restartCount"] == 0
    pods.open_gate()
    assert pods.ended()["status"]["phase"] == ("Succeeded" if again else "Failed")


SIDECAR = "trap 'echo {0} ends; exit 0' TERM; echo {0} begins; touch /shared/{0}; " + FOREVER
IN_TURN = ["one begins", "two begins", "main begins", "main ends", "two ends", "one ends"]


def sidecars(last: str) -> list[Manifest]:
    """Two sidecars, and an init container after which both of them have begun."""
    wait = "while [ ! -e /shared/two ]; do sleep 0.05; done"
    one, two = (shell(name, SIDECAR.format(name), restartPolicy="Always") for name in ("one", "two"))
    first = shell("between", "while [ ! -e /shared/one ]; do sleep 0.05; done")
    return [one, first, two, shell(last, wait)]


def test_sidecars_begin_before_the_others_and_end_after_them(pods: Pods) -> None:
    """In their turn, and in the opposite order; the pod's end is that of its containers."""
    pods.start([shell("main", f"echo main begins; {GATE}; echo main ends")], initContainers=sidecars("last"))
    pod = pods.running("one", "two", "main")
    assert pod["status"]["phase"] == "Running"
    assert conditions(pod)["Ready"] == "True"
    pods.open_gate()
    assert pods.ended()["status"]["phase"] == "Succeeded"
    assert pods.printed() == IN_TURN


def test_a_pod_that_is_deleted_ends_in_the_same_order(pods: Pods) -> None:
    """SIGTERM reaches its containers first and each sidecar when those before it have ended."""
    main = "trap 'echo main ends; exit 0' TERM; echo main begins; touch /shared/main; " + FOREVER
    watch = "while [ ! -e /shared/main ]; do sleep 0.05; done"
    pods.start([shell("main", main), shell("watch", watch)], initContainers=sidecars("last"))
    pods.until(lambda pod: states(pod).get("watch") == "terminated")
    pods.delete()
    assert pods.printed() == IN_TURN


def test_a_sidecar_is_started_again_whatever_the_pods_policy(pods: Pods) -> None:
    """Its end is no end of the pod, nor its exit code the pod's."""
    pods.start(
        [shell("main", GATE)],
        initContainers=[shell("beside", "exit 1", restartPolicy="Always")],
        restartPolicy="Never",
    )
    pod = pods.until(lambda pod: restarts(pod, "beside") >= 2 and states(pod)["main"] == "running")
    assert pod["status"]["phase"] == "Running"
    pods.open_gate()
    assert pods.ended()["status"]["phase"] == "Succeeded"


def test_a_pod_that_is_deleted_while_it_is_prepared_starts_nothing_more(pods: Pods) -> None:
    """Its init container is ended, its containers never begin."""
    pods.start([shell("main", "echo main")], initContainers=[shell("check", f"echo check; {FOREVER}")])
    pods.running("check")
    pods.delete()
    assert "main" not in pods.printed()


def test_a_pod_s_time_is_limited(pods: Pods) -> None:
    """After `activeDeadlineSeconds` it is ended as by a deletion, and has failed, whatever its exit code."""
    pods.start([shell("main", f"trap 'exit 0' TERM; {FOREVER}")], activeDeadlineSeconds=1)
    pod = pods.ended()
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")
