# SPDX-License-Identifier: Apache-2.0
"""The priority of a Job on a cluster that runs it: what is there before, and what follows a change."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.elastic.autoscaler.ranking import class_changes
from kfp_volcano.errors import NotFoundError, SpecError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.priority import change_priority, followed
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kfp_volcano.schemas.training_job import TrainingJob

PATIENCE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """A cluster of one node with two GPUs."""
    cluster = EmbeddedCluster(tmp_path, nodes="1x2", workdir=tmp_path)
    yield cluster
    cluster.shutdown(grace_s=0)


def job(name: str, priority: str, replicas: int, **spec: Any) -> TrainingJob:
    """A Job of sleeping pods with a GPU each."""
    worker = {"replicas": replicas, "resources": {"gpu": 1}}
    spec = {
        "framework": "custom",
        "image": "x",
        "command": ["sleep", "600"],
        "queue": "default",
        "priority": priority,
        "faults": {"evicted": "replace"},
        "elasticity": {"strategy": "fixed", "grace": "1s"},
        "roles": {"worker": worker},
        **spec,
    }
    return training_job(
        {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}
    )


def start(cluster: EmbeddedCluster, of: TrainingJob) -> str:
    """Submit a Job; its name."""
    return str(submit(cluster, of, run_id="r", step="submit", now=0)["metadata"]["name"])


def objects(cluster: EmbeddedCluster, kind: str, name: str, condition: Callable[[list[Any]], object]) -> list[Any]:
    """The objects of a kind whose names begin so, once something holds of them."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        every, version = cluster.list(kind)
        found = [each for each in every if each["metadata"]["name"].startswith(name)]
        if condition(found):
            return found
        assert time.monotonic() < deadline, found
        next(iter(cluster.watch(kind, resource_version=version, timeout_s=deadline - time.monotonic())), None)


def pods(cluster: EmbeddedCluster, name: str, condition: Callable[[list[Any]], object]) -> list[Any]:
    """The pods of a Job, once something holds of them."""
    return objects(cluster, "Pod", name, condition)


def running(found: list[Any]) -> list[Any]:
    """Those that run."""
    return [pod for pod in found if pod["status"]["phase"] == "Running"]


def test_missing_classes_are_all_named_before_anything_is_created(cluster: EmbeddedCluster) -> None:
    """The spec's pair in one problem, a task's own beside it; and what to do."""
    elastic = {"min": 1, "max": 2}
    evaluator = {"replicas": 1, "podPatch": {"spec": {"priorityClassName": "mine"}}}
    roles = {"worker": {"replicas": elastic, "resources": {"gpu": 1}}, "evaluator": evaluator}
    with pytest.raises(SpecError) as raised:
        start(cluster, job("a", "urgent", 1, roles=roles, elasticity={"strategy": "restart"}))
    assert [(problem.path, problem.message) for problem in raised.value.problems] == [
        ("spec.priority", "there is no PriorityClass urgent and no urgent-surplus"),
        ("podPatch.spec.priorityClassName", "there is no PriorityClass mine"),
    ]
    assert "kubectl apply -k deploy/priorities" in str(raised.value)
    for kind in ("Job", "PodGroup", "Pod"):
        assert cluster.list(kind)[0] == []


def test_a_surplus_class_is_missed_where_the_job_has_surplus_alone(cluster: EmbeddedCluster) -> None:
    """A Job of fixed size runs with one class of a pair."""
    cluster.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "x"}, "value": 7}
    )
    elastic = {"worker": {"replicas": {"min": 1, "max": 2}, "resources": {"gpu": 1}}}
    with pytest.raises(SpecError, match="there is no PriorityClass x-surplus"):
        start(cluster, job("elastic", "x", 1, roles=elastic, elasticity={"strategy": "restart"}))
    name = start(cluster, job("fixed", "x", 1))
    (pod,) = pods(cluster, name, lambda found: len(running(found)) == 1)
    assert pod["spec"]["priority"] == 7


def test_a_job_that_is_given_a_higher_priority_is_served_first(cluster: EmbeddedCluster) -> None:
    """The PodGroup and the scheduler follow; pods that are there keep their priority, new ones get the new."""
    holder = start(cluster, job("holder", "batch", 2))
    pods(cluster, holder, lambda found: len(running(found)) == 2)
    first, second = (start(cluster, job(name, "batch-low", 2)) for name in ("first", "second"))
    for name in (first, second):
        objects(cluster, "PodGroup", name, len)

    change = change_priority(cluster, second, "default", "interactive", by="ada", now=0.0)
    assert (change.before, change.after) == ("batch-low", "interactive")
    assert followed(cluster, second, "default", "interactive") is True
    [noted] = class_changes(cluster.get("Job", second, "default"))
    assert (noted.to_class, noted.by, noted.explanation) == ("interactive", "ada", "ada chose interactive")
    assert change_priority(cluster, second, "default", "interactive", by="ada", now=0.0).patch == ()

    cluster.delete("Job", holder, "default")
    served = pods(cluster, second, lambda found: len(running(found)) == 2)
    assert {pod["spec"]["priority"] for pod in served} == {100000}
    assert running(pods(cluster, first, lambda _: True)) == []

    change_priority(cluster, second, "default", "batch", by="ada", now=0.0)
    cluster.delete("Pod", served[0]["metadata"]["name"], "default", grace_s=0)
    pods(cluster, second, lambda found: sorted(pod["spec"]["priority"] for pod in found) == [10000, 100000])


def test_a_change_that_cannot_be_is_refused_and_changes_nothing(cluster: EmbeddedCluster) -> None:
    """A class that is not there; a Job that is not there."""
    name = start(cluster, job("a", "batch", 1))
    with pytest.raises(SpecError, match="there is no PriorityClass 'urgent'"):
        change_priority(cluster, name, "default", "urgent", by="ada", now=0.0)
    assert cluster.get("Job", name, "default")["spec"]["priorityClassName"] == "batch"
    with pytest.raises(NotFoundError):
        change_priority(cluster, "absent", "default", "batch", by="ada", now=0.0)
