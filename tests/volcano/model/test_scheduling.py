# SPDX-License-Identifier: Apache-2.0
"""Laws of the scheduler and the controllers that hold for any Jobs and any order of things."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfp_volcano.volcano.model.objects import phase_of, status_of
from kfp_volcano.volcano.model.pods import INDEX, JOB, TASK
from kfp_volcano.volcano.model.resources import canonical, parse_quantity, quantities

GPU = "nvidia.com/gpu"
ROOM = {"gpu-0": 8, "gpu-1": 8}


def task(name: str, replicas: int, gpus: int, least: int, **more: Any) -> dict[str, Any]:
    resources = {"limits": {GPU: str(gpus)}, "requests": {"cpu": "1"}}
    spec = {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "x", "resources": resources}]}
    return {"name": name, "replicas": replicas, "minAvailable": least, "template": {"spec": spec}, **more}


def job(name: str, core: int, surplus: int, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """A Job with a gang and a surplus."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "queue": "default",
            "minAvailable": core,
            "tasks": [task("core", core, gpus, core), task("elastic", surplus, gpus, 0)],
            **spec,
        },
    }


def replicas(number: int) -> list[dict[str, Any]]:
    return [{"op": "replace", "path": "/spec/tasks/1/replicas", "value": number}]


def pods(lab: Any, name: str) -> Counter[str]:
    """How many pods of a Job are in which phase."""
    found = lab.world.objects.get("Pod", {}).values()
    return Counter(phase_of(pod) for pod in found if pod["metadata"]["annotations"][JOB] == name)


shapes = st.tuples(st.integers(1, 6), st.integers(0, 8), st.integers(1, 4))
actions = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), shapes),
        st.tuples(st.just("resize"), st.tuples(st.integers(0, 5), st.integers(0, 8))),
        st.tuples(st.just("delete"), st.tuples(st.integers(0, 5))),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=actions)
def test_nodes_and_gangs_are_respected(new_lab: Any, steps: list[tuple[str, tuple[int, ...]]]) -> None:
    """No node gives more than it has, no gang runs in part, indexes have no holes, and queues count what runs."""
    lab = new_lab()
    names: list[str] = []
    for action, numbers in steps:
        if action == "submit":
            names.append(f"job-{len(names)}")
            lab.submit(job(names[-1], *numbers))
        elif numbers[0] < len(names) and ("default", names[numbers[0]]) in lab.world.objects.get("Job", {}):
            name = names[numbers[0]]
            if action == "resize":
                lab.patch(name, replicas(numbers[1]))
            else:
                lab.delete(name)
        lab.settle(1)
        taken = lab.held()
        assert all(taken[node] <= room for node, room in ROOM.items())
        state = lab.state()
        assert state["queues"]["default"]["allocatedGPU"] == sum(taken.values())
        for name, seen in state["jobs"].items():
            spec = lab.world.get("Job", ("default", name))["spec"]
            running = sum(len(phases.get("Running", ())) for phases in seen["tasks"].values())
            assert running == 0 or len(seen["tasks"]["core"]["Running"]) == spec["minAvailable"]
            indexes = sorted(itertools.chain.from_iterable(seen["tasks"].get("elastic", {}).values()))
            assert indexes in ([], list(range(spec["tasks"][1]["replicas"])))


def test_surplus_is_shared_among_jobs(lab: Any) -> None:
    """Jobs of the same priority that grow at once get the same part of what is free (drf)."""
    for name in ("a", "b"):
        lab.submit(job(name, 1, 12))
    lab.settle()
    assert pods(lab, "a")["Running"] == pods(lab, "b")["Running"] == 8


def test_the_higher_priority_starts_first(lab: Any) -> None:
    """Of two gangs of which one fits, the one with the higher priority starts though it came later."""
    lab.priority("high", 10)
    lab.submit(job("first", 12, 0))
    lab.submit(job("second", 12, 0, priorityClassName="high"))
    lab.settle()
    assert (pods(lab, "first")["Running"], pods(lab, "second")["Running"]) == (0, 12)


def test_a_gang_enters_where_surplus_could_make_room(lab: Any) -> None:
    """A full queue lets a gang in, to wait with pods, if giving back surplus would serve it; otherwise not."""
    lab.queue({"kind": "Queue", "metadata": {"name": "q"}, "spec": {"capability": {GPU: "16"}}})
    lab.settle()
    lab.submit(job("elastic", 2, 14, queue="q"))
    lab.settle()
    lab.submit(job("fits", 4, 0, queue="q"))
    lab.submit(job("never", 15, 0, queue="q"))
    lab.settle()
    state = lab.state()["jobs"]
    assert state["fits"]["podgroup"]["phase"] == "Inqueue"
    assert state["never"]["podgroup"]["phase"] == "Pending"
    groups = lab.world.objects["PodGroup"].values()
    reasons = {each["metadata"]["name"].split("-")[0]: status_of(each)["conditions"][-1]["message"] for each in groups}
    assert "insufficient nvidia.com/gpu" in reasons["never"]
    lab.patch("elastic", replicas(10))
    lab.settle()
    assert pods(lab, "fits")["Running"] == 4


def test_a_restarted_task_leaves_the_others(lab: Any) -> None:
    """RestartTask replaces the pods of one task only, and is counted as a retry."""
    policies = [{"event": "PodFailed", "action": "RestartTask"}]
    lab.submit(job("a", 2, 2, maxRetry=10, policies=policies))
    lab.settle()
    before = lab.uids()
    lab.end("a-elastic-0", 1)
    lab.settle()
    after = lab.uids()
    assert {name for name in before if before[name] != after[name]} == {"a-elastic-0", "a-elastic-1"}
    assert lab.state()["jobs"]["a"]["retryCount"] == 1
    assert lab.state()["jobs"]["a"]["phase"] == "Running"


def test_a_pod_carries_what_volcano_gives_it(lab: Any) -> None:
    """Names, labels, annotations, host name and environment of a pod are the controller's and its plugins'."""
    lab.submit(job("a", 1, 1, plugins={"svc": [], "env": []}))
    lab.settle()
    pod = lab.world.get("Pod", ("default", "a-elastic-0"))
    assert pod["metadata"]["annotations"] | {TASK: "elastic", INDEX: "0", JOB: "a"} == pod["metadata"]["annotations"]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("a-elastic-0", "a")
    env = {entry["name"]: entry for entry in pod["spec"]["containers"][0]["env"]}
    assert env["VC_TASK_INDEX"]["value"] == "0"
    assert env["VC_CORE_HOSTS"]["valueFrom"]["configMapKeyRef"] == {"name": "a-svc", "key": "VC_CORE_HOSTS"}
    hosts = lab.world.get("ConfigMap", ("default", "a-svc"))["data"]
    assert hosts["VC_ELASTIC_HOSTS"] == "a-elastic-0.a"
    lab.patch("a", replicas(2))
    lab.settle()
    assert lab.world.get("ConfigMap", ("default", "a-svc"))["data"]["VC_ELASTIC_NUM"] == "2"


def test_a_minimum_of_nothing_is_not_written(lab: Any) -> None:
    """A PodGroup, as Go writes it, has no `minMember` where that is zero."""
    lab.submit(job("a", 0, 2))
    lab.settle()
    (group,) = lab.world.objects["PodGroup"].values()
    assert "minMember" not in group["spec"]
    assert group["spec"]["minTaskMember"] == {"core": 0, "elastic": 0}


def test_pods_follow_one_another_to_the_node_that_was_cleared(lab: Any) -> None:
    """A pod that is taken no longer weighs on its node's score, so that the gang fills it before it clears another."""
    for name, value in (("low", 1), ("high", 100)):
        lab.priority(name, value)
    lab.submit(job("a", 2, 0, gpus=4, priorityClassName="low"))
    lab.settle()
    lab.submit(job("b", 3, 0, gpus=2, priorityClassName="high"))
    lab.settle()
    lab.submit(job("c", 5, 0, gpus=1, priorityClassName="high"))
    lab.settle()
    assert (pods(lab, "a"), pods(lab, "c")) == ({"Running": 1, "Pending": 1}, {"Running": 5})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1000m", "1"),
        ("1.0", "1"),
        ("1500m", "1500m"),
        ("1024Mi", "1Gi"),
        ("1000", "1k"),
        ("1536Mi", "1536Mi"),
        (0, "0"),
    ],
)
def test_quantities_are_written_as_kubernetes_does(text: str | int, shown: str) -> None:
    """In the largest unit of its kind without a fraction."""
    assert canonical(text) == shown


@pytest.mark.parametrize(
    ("text", "milli"),
    [("2", 2000), ("500m", 500), ("1.5", 1500), ("1Ki", 1024_000), ("1e3", 1_000_000), ("1k", 1_000_000), (3, 3000)],
)
def test_quantities_are_read_as_kubernetes_does(text: str | int, milli: int) -> None:
    """Suffixes, exponents and plain numbers mean the same as in the API."""
    assert parse_quantity(text) == milli


@given(st.dictionaries(st.sampled_from(["cpu", "memory", GPU]), st.integers(0, 10**9)))
def test_quantities_survive_being_written(amounts: dict[str, int]) -> None:
    """What is written of amounts reads as the same amounts."""
    assert {name: parse_quantity(text) for name, text in quantities(amounts).items()} == {
        name: amount for name, amount in amounts.items() if amount
    }
