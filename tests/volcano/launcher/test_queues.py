# SPDX-License-Identifier: Apache-2.0
"""Plans carried out on a cluster."""

from __future__ import annotations

import pytest

from kfp_volcano.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from kfp_volcano.schemas.queue_validation import queue_tree
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.queues import apply, read
from kfp_volcano.volcano.manifests.queue_plan import plan

GPU = "nvidia.com/gpu"


@pytest.fixture(name="cluster")
def _cluster(tmp_path):
    """An embedded cluster: 8 GPUs, queues `default` and `research` of no tree."""
    cluster = EmbeddedCluster(tmp_path / "cluster", workdir=tmp_path)
    yield cluster
    cluster.shutdown(grace_s=0)


def queue(name, gpu, *below, **more):
    """A queue that deserves GPUs."""
    return {"name": name, "deserved": {"gpu": gpu}, **({"queues": list(below)} if below else {}), **more}


def tree_of(*queues):
    """A tree by its queues."""
    document = {"metadata": {"name": "t"}, "spec": {"plugin": "capacity", "queues": list(queues)}}
    return queue_tree({"apiVersion": "kfp-volcano/v1", "kind": "QueueTree", **document})


TWO = tree_of(queue("dept", 8, queue("a", 4), queue("b", 4)))
ONE = tree_of(queue("dept", 8, queue("a", 8)))


def bring_about(cluster, tree):
    """Plan and apply; every step goes through."""
    applied = apply(cluster, plan(tree, read(cluster)), tell=lambda step: None)
    assert applied.refused is None, applied.error
    return [(step.action, step.name) for step in applied.done]


def state(cluster, name):
    """A queue's state."""
    return cluster.get("Queue", name)["status"]["state"]


def job(queue):
    """A Job of one pod that runs until it is deleted."""
    container = {"name": "main", "image": "x", "command": ["sleep", "600"], "resources": {"limits": {GPU: "1"}}}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    task = {"name": "w", "replicas": 1, "minAvailable": 1, "template": {"spec": spec}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "sleeper", "namespace": "team"},
        "spec": {"queue": queue, "minAvailable": 1, "tasks": [task]},
    }


def gone(cluster, kind):
    """Wait until no object of a kind is left."""
    while True:
        found, version = cluster.list(kind)
        if not found:
            return
        next(iter(cluster.watch(kind, resource_version=version, timeout_s=30)))


def test_a_tree_is_brought_about_and_then_there_is_nothing_to_do(cluster):
    """Queues are there, open, and take Jobs when `apply` returns."""
    assert bring_about(cluster, TWO) == [("create", "dept"), ("create", "a"), ("create", "b")]
    assert {state(cluster, name) for name in ("dept", "a", "b")} == {"Open"}
    assert plan(TWO, read(cluster)).steps == ()
    cluster.create(job("a"))
    with pytest.raises(InvalidError, match="leaf"):
        cluster.create({**job("dept"), "metadata": {"name": "other", "namespace": "team"}})


def test_queues_that_have_left_are_closed_and_deleted(cluster):
    """What `b` deserved goes to `a`."""
    bring_about(cluster, TWO)
    assert bring_about(cluster, ONE) == [("close", "b"), ("delete", "b"), ("update", "a")]
    assert cluster.get("Queue", "a")["spec"]["deserved"] == {GPU: "8"}
    with pytest.raises(NotFoundError):
        cluster.get("Queue", "b")
    assert {each["metadata"]["name"] for each in cluster.list("Queue")[0]} == {
        "root",
        "default",
        "research",
        "dept",
        "a",
    }


def test_a_queue_in_use_takes_no_more_jobs_and_goes_when_it_is_empty(cluster):
    """Its Job runs on; the rest of the tree is brought about meanwhile."""
    bring_about(cluster, TWO)
    cluster.create(job("b"))
    bring_about(cluster, ONE)
    assert state(cluster, "b") == "Closing"
    assert cluster.get("Job", "sleeper", "team")
    with pytest.raises(InvalidError, match="Open"):
        cluster.create({**job("b"), "metadata": {"name": "late", "namespace": "team"}})
    cluster.delete("Job", "sleeper", "team")
    gone(cluster, "PodGroup")
    assert bring_about(cluster, ONE) == [("delete", "b")]


def test_a_queue_that_comes_back_is_opened_again(cluster):
    """The tree says that it takes Jobs."""
    bring_about(cluster, TWO)
    cluster.create(job("b"))
    bring_about(cluster, ONE)
    assert ("open", "b") in bring_about(cluster, TWO)
    assert state(cluster, "b") == "Open"


def test_a_closed_department_closes_its_teams(cluster):
    """And opens them again; a second time there is nothing to do."""
    closed = tree_of(queue("dept", 8, queue("a", 4), queue("b", 4), closed=True))
    bring_about(cluster, TWO)
    for tree, expected in ((closed, "Closed"), (TWO, "Open")):
        bring_about(cluster, tree)
        assert {state(cluster, name) for name in ("dept", "a", "b")} == {expected}
        assert plan(tree, read(cluster)).steps == ()


def test_a_job_that_came_after_the_plan_keeps_its_queue(cluster):
    """What is in a queue is looked at again right before it is deleted, when it is closed."""
    bring_about(cluster, TWO)
    old = plan(ONE, read(cluster))
    cluster.create(job("b"))
    applied = apply(cluster, old, tell=lambda step: None)
    assert [step.action for step in applied.done] == ["close"]
    assert isinstance(applied.error, ConflictError)
    assert "Job team/sleeper" in str(applied.error)
    assert cluster.get("Queue", "b")


def test_it_stops_at_the_first_refusal_and_says_what_is_done(cluster):
    """A queue changed since the plan was made is not overwritten; what comes after it is not tried."""
    bring_about(cluster, TWO)
    grown = tree_of(queue("dept", 16, queue("a", 8), queue("b", 8)))
    old = plan(grown, read(cluster))
    assert [step.name for step in old.steps] == ["dept", "a", "b"]
    deserved = [{"op": "replace", "path": "/spec/deserved", "value": {GPU: "3"}}]
    cluster.patch("Queue", "a", "", deserved)
    told = []
    applied = apply(cluster, old, tell=lambda step: told.append(step.name))
    assert told == ["dept", "a"]
    assert [step.name for step in applied.done] == ["dept"]
    assert applied.refused.name == "a"
    assert isinstance(applied.error, ConflictError)
    cluster.patch("Queue", "a", "", [{"op": "replace", "path": "/spec/deserved", "value": {GPU: "4"}}])
    assert bring_about(cluster, grown) == [("update", "a"), ("update", "b")]


def test_quotas_are_created_changed_and_deleted(cluster):
    """With the queues of their teams."""

    def quota_of(gpu):
        return tree_of(queue("a", 4, quotas={"vision": {"requests": {"gpu": gpu}}}))

    bring_about(cluster, quota_of(4))
    quota = cluster.get("ResourceQuota", "a", "vision")
    assert quota["spec"]["hard"] == {"requests.nvidia.com/gpu": "4"}
    assert bring_about(cluster, quota_of(6)) == [("update", "a")]
    assert bring_about(cluster, tree_of(queue("a", 4))) == [("delete", "a")]
    assert cluster.list("ResourceQuota")[0] == []


class Deaf:
    """A cluster whose queue controller does not run: queues never get a state."""

    def __init__(self, cluster):
        self._cluster = cluster

    def __getattr__(self, name):
        return getattr(self._cluster, name)

    def list(self, kind, *args):
        found, version = self._cluster.list(kind, *args)
        return [{**each, "status": {}} for each in found] if kind == "Queue" else found, version


def test_a_controller_that_does_not_answer_is_an_error_in_words(cluster):
    """Not a wait without an end."""
    deaf = Deaf(cluster)
    applied = apply(deaf, plan(ONE, read(deaf)), tell=lambda step: None, patience_s=0.1)
    assert isinstance(applied.error, UnavailableError)
    assert "does Volcano's controller run?" in str(applied.error)
