# SPDX-License-Identifier: Apache-2.0
"""What every implementation of the Cluster port must show."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import ConflictError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

    Until = Callable[[Cluster, str, str, Callable[[list[Manifest]], object]], list[Manifest]]

GPU = "nvidia.com/gpu"
SHELL = ["sh", "-c"]
IN_EVERY_NAMESPACE = "kube-root-ca.crt"
"""A ConfigMap that Kubernetes puts there itself."""


def config(name: str, namespace: str, **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def names(found: list[Manifest]) -> list[str]:
    return sorted({each["metadata"]["name"] for each in found} - {IN_EVERY_NAMESPACE})


def phases(pods: list[Manifest]) -> Counter[str]:
    return Counter(pod.get("status", {}).get("phase", "") for pod in pods)


def job_phase(found: list[Manifest]) -> str | None:
    return found[0].get("status", {}).get("state", {}).get("phase") if found else None


def allocated(cluster: Cluster, queue: str) -> str:
    return str(cluster.get("Queue", queue)["status"].get("allocated", {}).get(GPU, "0"))


def restarts(pod: Manifest) -> int:
    status = pod.get("status", {}).get("containerStatuses", [{}])[0]
    return int(status.get("restartCount", 0)) if "running" in status.get("state", {}) else 0


def test_an_object_is_created_once(cluster: Cluster, namespace: str) -> None:
    """What is created can be read, with an identity of its own; creating it again is a conflict."""
    created = cluster.create(config("one", namespace, a="1"))
    assert cluster.get("ConfigMap", "one", namespace) == created
    assert created["metadata"]["uid"]
    assert created["metadata"]["creationTimestamp"].endswith("Z")
    with pytest.raises(ConflictError):
        cluster.create(config("one", namespace, a="1"))


def test_no_name_is_the_name_of_nothing(cluster: Cluster, namespace: str) -> None:
    """And not of all objects."""
    cluster.create(config("one", namespace))
    with pytest.raises(NotFoundError):
        cluster.get("ConfigMap", "", namespace)
    with pytest.raises(NotFoundError):
        cluster.patch("ConfigMap", "", namespace, [{"op": "add", "path": "/data", "value": {}}])
    with pytest.raises(NotFoundError):
        cluster.delete("ConfigMap", "", namespace)
    assert names(cluster.list("ConfigMap", namespace)[0]) == ["one"]


def test_only_the_very_object_that_is_meant_is_deleted(cluster: Cluster, namespace: str) -> None:
    """One that has come under the name of another stays."""
    first = cluster.create(config("one", namespace))["metadata"]["uid"]
    cluster.delete("ConfigMap", "one", namespace, uid=first)
    second = cluster.create(config("one", namespace))
    with pytest.raises(ConflictError):
        cluster.delete("ConfigMap", "one", namespace, uid=first)
    assert cluster.get("ConfigMap", "one", namespace) == second


@pytest.mark.parametrize("call", ["get", "patch", "delete"])
def test_what_is_not_there_is_not_found(cluster: Cluster, namespace: str, call: str) -> None:
    """Reading, patching or deleting an absent object raises NotFoundError."""
    more: list[Any] = [[]] if call == "patch" else []
    with pytest.raises(NotFoundError):
        getattr(cluster, call)("ConfigMap", "absent", namespace, *more)


def test_a_list_can_be_narrowed(cluster: Cluster, namespace: str) -> None:
    """A list keeps to a namespace, to labels and to fields; without a namespace it spans all of them."""
    for name, team in (("a", "red"), ("b", "blue")):
        manifest = config(name, namespace)
        manifest["metadata"]["labels"] = {"team": team, "kind": "test"}
        cluster.create(manifest)
    cluster.create(config("c", f"{namespace}-other"))
    assert names(cluster.list("ConfigMap", namespace)[0]) == ["a", "b"]
    assert names(cluster.list("ConfigMap", namespace, {"team": "red", "kind": "test"})[0]) == ["a"]
    assert names(cluster.list("ConfigMap", namespace, fields={"metadata.name": "b"})[0]) == ["b"]
    assert names(cluster.list("ConfigMap", namespace, {"team": "red"}, fields={"metadata.name": "b"})[0]) == []
    assert {"a", "b", "c"} <= set(names(cluster.list("ConfigMap")[0]))


def test_a_patch_is_whole_or_nothing(cluster: Cluster, namespace: str) -> None:
    """A failed test of a JSON Patch raises ConflictError and leaves the object as it was."""
    before = cluster.create(config("one", namespace, a="1"))
    change = {"op": "replace", "path": "/data/a", "value": "2"}
    for test in ({"path": "/data/a", "value": "9"}, {"path": "/data/absent", "value": "1"}):
        with pytest.raises(ConflictError):
            cluster.patch("ConfigMap", "one", namespace, [change, {"op": "test", **test}])
    assert cluster.get("ConfigMap", "one", namespace) == before
    version = before["metadata"]["resourceVersion"]
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    after = cluster.patch("ConfigMap", "one", namespace, [test, change])
    assert after["data"] == {"a": "2"}
    assert after["metadata"]["resourceVersion"] != version


def test_of_two_patches_with_the_same_test_one_wins(cluster: Cluster, namespace: str) -> None:
    """A lease taken with a test of its holder can be taken by one only."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lead", "namespace": namespace},
        "spec": {"holderIdentity": ""},
    }
    cluster.create(lease)
    path = "/spec/holderIdentity"

    def take(who: str) -> list[dict[str, str]]:
        return [{"op": "test", "path": path, "value": ""}, {"op": "replace", "path": path, "value": who}]

    cluster.patch("Lease", "lead", namespace, take("a"))
    with pytest.raises(ConflictError):
        cluster.patch("Lease", "lead", namespace, take("b"))
    assert cluster.get("Lease", "lead", namespace)["spec"]["holderIdentity"] == "a"


def test_a_watch_tells_every_change_in_order(cluster: Cluster, namespace: str) -> None:
    """A watch from a list's version tells what came after it, and ends with a bookmark to go on from."""
    _, version = cluster.list("ConfigMap", namespace)
    cluster.create(config("one", namespace, a="1"))
    cluster.patch("ConfigMap", "one", namespace, [{"op": "replace", "path": "/data/a", "value": "2"}])
    cluster.delete("ConfigMap", "one", namespace)
    events = list(cluster.watch("ConfigMap", namespace, resource_version=version, timeout_s=0.1))
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    assert [event.object["data"]["a"] for event in events[:3]] == ["1", "2", "2"]
    cluster.create(config("two", namespace))
    resumed = cluster.watch("ConfigMap", namespace, resource_version=events[-1].resource_version, timeout_s=30)
    assert next(iter(resumed)).object["metadata"]["name"] == "two"


def test_what_an_object_owns_goes_with_it(cluster: Cluster, namespace: str, until: Until) -> None:
    """Deleting an owner deletes what names it as owner."""
    owner = cluster.create(config("owner", namespace))
    owned = config("owned", namespace)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned["metadata"]["ownerReferences"] = [reference]
    cluster.create(owned)
    cluster.delete("ConfigMap", "owner", namespace)
    until(cluster, "ConfigMap", namespace, lambda found: not names(found))


@pytest.mark.usefixtures("volcano")
def test_admission_refuses_with_its_own_words(cluster: Cluster, jobs: Any) -> None:
    """A Job for an unknown queue is refused at creation, a change of what is fixed at the patch."""
    with pytest.raises(InvalidError, match='"nowhere" not found'):
        cluster.create(jobs.sleeping("a", 1) | {"spec": jobs.sleeping("a", 1)["spec"] | {"queue": "nowhere"}})
    cluster.create(jobs.sleeping("a", 1))
    with pytest.raises(InvalidError, match="job updates may not change fields other than"):
        cluster.patch("Job", "a", jobs.namespace, [{"op": "replace", "path": "/spec/queue", "value": jobs.other_queue}])


@pytest.mark.usefixtures("volcano")
def test_a_job_gets_the_pods_volcano_would_make(cluster: Cluster, jobs: Any, until: Until) -> None:
    """Names, labels and the hosts of the peers are in place, and the queue counts the GPUs."""
    cluster.create(jobs.sleeping("job", 2, surplus=1))
    pods = until(cluster, "Pod", jobs.namespace, lambda found: phases(found) == {"Running": 3})
    assert names(pods) == ["job-core-0", "job-core-1", "job-elastic-0"]
    labels = pods[0]["metadata"]["labels"]
    assert labels["volcano.sh/job-name"] == "job"
    assert labels["volcano.sh/task-spec"] == "core"
    assert labels["volcano.sh/task-index"] == "0"
    hosts = cluster.get("ConfigMap", "job-svc", jobs.namespace)["data"]
    assert hosts["VC_CORE_HOSTS"] == "job-core-0.job,job-core-1.job"
    until(cluster, "Queue", "", lambda _: allocated(cluster, jobs.queue) == "3")
    until(cluster, "Job", jobs.namespace, lambda found: job_phase(found) == "Running")


@pytest.mark.usefixtures("kubelets")
def test_pods_have_addresses(cluster: Cluster, jobs: Any, until: Until) -> None:
    """Each that runs has one of its own."""
    cluster.create(jobs.sleeping("job", 3))
    pods = until(cluster, "Pod", jobs.namespace, lambda found: phases(found) == {"Running": 3})
    assert len({pod["status"]["podIP"] for pod in pods}) == 3


@pytest.mark.usefixtures("volcano")
def test_a_resize_changes_the_tail(cluster: Cluster, jobs: Any, until: Until) -> None:
    """More replicas are added behind, fewer are taken from behind, and who stays is not touched."""
    cluster.create(jobs.sleeping("job", 1, surplus=3))
    before = until(cluster, "Pod", jobs.namespace, lambda found: phases(found) == {"Running": 4})
    replicas = "/spec/tasks/1/replicas"
    cluster.patch("Job", "job", jobs.namespace, [{"op": "replace", "path": replicas, "value": 1}])
    after = until(cluster, "Pod", jobs.namespace, lambda found: len(found) == 2)
    assert names(after) == ["job-core-0", "job-elastic-0"]
    uids = {pod["metadata"]["uid"] for pod in before}
    assert all(pod["metadata"]["uid"] in uids for pod in after)
    cluster.patch("Job", "job", jobs.namespace, [{"op": "replace", "path": replicas, "value": 2}])
    until(cluster, "Pod", jobs.namespace, lambda found: phases(found) == {"Running": 3})


@pytest.mark.usefixtures("volcano")
def test_a_gang_waits_whole_and_says_why(cluster: Cluster, jobs: Any, until: Until) -> None:
    """A gang that does not fit gets no GPU at all and a reason in words; it starts when there is room."""
    cluster.create(jobs.sleeping("first", 6))
    until(cluster, "Pod", jobs.namespace, lambda found: phases(found) == {"Running": 6})
    cluster.create(jobs.sleeping("second", 4))

    def waits(groups: list[Manifest]) -> bool:
        group = next((each for each in groups if each["metadata"]["name"].startswith("second-")), None)
        if group is None:
            return False
        conditions = group.get("status", {}).get("conditions") or [{}]
        if conditions[-1].get("type") == "Unschedulable":
            return bool(conditions[-1]["message"])
        # Of one that its queue has not let in, Volcano only sends an Event.
        told = [event for event in cluster.list("Event", jobs.namespace)[0] if event["reason"] == "Unschedulable"]
        return any(event["involvedObject"]["name"] == group["metadata"]["name"] and event["message"] for event in told)

    until(cluster, "PodGroup", jobs.namespace, waits)
    assert phases(cluster.list("Pod", jobs.namespace)[0])["Running"] == 6
    cluster.delete("Job", "first", jobs.namespace)
    until(cluster, "Pod", jobs.namespace, lambda found: phases(found) == {"Running": 4})


@pytest.mark.usefixtures("kubelets")
def test_gpus_of_a_pod_that_is_going_are_held(cluster: Cluster, jobs: Any, until: Until) -> None:
    """A waiting gang does not start before the pods it waits for have gone."""
    if jobs.place is not None and jobs.place.gpus < 8:
        pytest.skip(f"this needs 8 {GPU} that are free")
    stubborn = "trap 'echo asked' TERM; echo up; while true; do sleep 1; done"
    task = jobs.task("core", 1, [*SHELL, stubborn], gpus=4, terminationGracePeriodSeconds=2)
    cluster.create(jobs.job("old", [task]))
    cluster.create(jobs.sleeping("other", 1, gpus=4))
    until(cluster, "Pod", jobs.namespace, lambda found: phases(found) == {"Running": 2})
    cluster.create(jobs.sleeping("new", 1, gpus=4))
    until(cluster, "PodGroup", jobs.namespace, lambda found: len(found) == 3)
    _, version = cluster.list("Pod", jobs.namespace)
    cluster.delete("Job", "old", jobs.namespace)
    ended = False
    for event in cluster.watch("Pod", jobs.namespace, resource_version=version, timeout_s=60):
        pod = event.object
        if pod["metadata"].get("name") == "old-core-0":
            ended = ended or event.type == "DELETED" or pod["status"]["phase"] in {"Failed", "Succeeded"}
        elif event.type == "BOOKMARK" or pod["spec"].get("nodeName"):
            break
    assert event.type != "BOOKMARK"
    assert ended
    until(cluster, "Pod", jobs.namespace, lambda found: phases(found) == {"Running": 2})


@pytest.mark.usefixtures("kubelets")
def test_a_failing_container_restarts_in_its_pod(cluster: Cluster, jobs: Any, until: Until) -> None:
    """The pod keeps its name, address and log; the status counts the restart and remembers the exit."""
    program = "echo run; if [ -e /data/seen ]; then exec sleep 600; fi; touch /data/seen; exit 7"
    volumes = [{"name": "data", "emptyDir": {}}]
    container = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    cluster.create(jobs.job("job", [jobs.task("core", 1, [*SHELL, program], volumes=volumes, container=container)]))

    pod = until(cluster, "Pod", jobs.namespace, lambda found: found and restarts(found[0]) == 1)[0]
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 7
    assert pod["status"]["phase"] == "Running"


@pytest.mark.usefixtures("kubelets")
def test_logs_go_on_over_restarts(cluster: Cluster, jobs: Any, until: Until) -> None:
    """Logs go on where one stopped reading, and hold what every start of the container printed, in whole lines."""
    program = (
        "if [ -e /data/seen ]; then echo again; exec sleep 600; fi; touch /data/seen; echo Grüße; printf end; exit 3"
    )
    volumes = [{"name": "data", "emptyDir": {}}]
    container = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    cluster.create(jobs.job("job", [jobs.task("core", 1, [*SHELL, program], volumes=volumes, container=container)]))
    until(cluster, "Pod", jobs.namespace, lambda found: found and restarts(found[0]) == 1)
    stop, read, place = threading.Event(), "", ""
    for text, place in cluster.follow_logs("job-core-0", jobs.namespace, stop=stop):  # noqa: B007  # where it stopped
        read += text
        if read.endswith("again\n"):
            break
    assert read == "Grüße\nend\nagain\n"
    assert cluster.logs("job-core-0", jobs.namespace, after=place) == ("", place)
    assert cluster.logs("job-core-0", jobs.namespace, tail=1) == ("again\n", place)
    with pytest.raises(NotFoundError):
        cluster.logs("absent", jobs.namespace)


@pytest.mark.usefixtures("kubelets")
def test_a_job_completes_with_its_core(cluster: Cluster, jobs: Any, until: Until) -> None:
    """TaskCompleted on the core completes the Job, ends the surplus, and frees the queue."""
    core = jobs.task("core", 1, ["true"]) | {"policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]}
    cluster.create(jobs.job("job", [core, jobs.task("elastic", 1, ["sleep", "600"], least=0)]))
    until(cluster, "Job", jobs.namespace, lambda found: job_phase(found) == "Completed")
    until(cluster, "Pod", jobs.namespace, lambda found: names(found) == ["job-core-0"])
    until(cluster, "Queue", "", lambda _: allocated(cluster, jobs.queue) == "0")


@pytest.mark.usefixtures("kubelets")
def test_a_pod_that_ignores_the_signal_is_killed(cluster: Cluster, jobs: Any, until: Until) -> None:
    """After the grace period nothing is left of a deleted pod."""
    program = "trap '' TERM; while true; do sleep 1; done"
    cluster.create(jobs.job("job", [jobs.task("core", 1, ["sh", "-c", program], terminationGracePeriodSeconds=1)]))
    first = until(cluster, "Pod", jobs.namespace, lambda found: phases(found) == {"Running": 1})[0]
    cluster.delete("Pod", "job-core-0", jobs.namespace)
    uid = first["metadata"]["uid"]
    until(cluster, "Pod", jobs.namespace, lambda found: found and found[0]["metadata"]["uid"] != uid)


@pytest.mark.usefixtures("kubelets")
def test_volumes_are_shared_and_visible_outside(cluster: Cluster, jobs: Any, until: Until) -> None:
    """Pods that mount a claim see one folder, and whoever asks the cluster sees it, too."""
    folder = cluster.volume(jobs.namespace, "shared")
    if folder is None:
        pytest.skip("this cluster's volumes are not mounted here")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]
    container = {"volumeMounts": [{"name": "data", "mountPath": "/data"}], "env": [{"name": "OUT", "value": "/data/x"}]}
    task = jobs.task("core", 1, ["sh", "-c", 'echo here > "$OUT"'], volumes=volumes, container=container)
    cluster.create(jobs.job("job", [task]))
    until(cluster, "Job", jobs.namespace, lambda found: job_phase(found) == "Completed")
    assert (folder / "x").read_text() == "here\n"


@pytest.mark.usefixtures("volcano")
def test_preflight_finds_what_would_not_run(cluster: Cluster, jobs: Any) -> None:
    """A fine Job has no findings; an unknown queue and a gang beyond the cluster have one with a remedy each."""
    assert cluster.preflight(jobs.sleeping("fine", 2)) == []
    lost = jobs.sleeping("lost", 1)
    lost["spec"]["queue"] = "nowhere"
    huge = jobs.sleeping("huge", 100)
    huge["spec"]["queue"] = jobs.other_queue
    for job, path in ((lost, "spec.queue"), (huge, "spec.minAvailable")):
        findings = cluster.preflight(job)
        assert [finding[0] for finding in findings] == [path]
        assert all(message and remedy for _, message, remedy in findings)
