# SPDX-License-Identifier: Apache-2.0
"""What would change, and for whom."""

from __future__ import annotations

import pytest

from kfp_volcano.elastic.simulator.scenario import Job, Node, Queue, Scenario
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.traced import Traced
from kfp_volcano.elastic.simulator.whatif import changed, effects, more_gpus, more_nodes
from kfp_volcano.errors import SpecError


def job(name, gpus, duration=600.0, **options):
    work = Traced(duration_s=duration, gpus=gpus)
    return Job(name=name, submitted_at=0.0, work=work, workers=gpus, min_workers=gpus, max_workers=gpus, **options)


NOW = Scenario(
    name="now",
    nodes=(Node(name="n0", gpus=4, gpu_class="a100"), Node(name="n1", gpus=4, gpu_class="a100")),
    jobs=(job("runs", 8, placed=("n0",) * 4 + ("n1",) * 4), job("waits", 4)),
    queues=(Queue(name="default"), Queue(name="research", deserved=4, capability=6, guarantee=2)),
)


def test_more_nodes_let_a_gang_start_at_once_and_leave_the_others_as_they_were():
    """Who is concerned, and by how much."""
    then = changed(NOW, nodes=more_nodes(NOW, 1, "a100"))
    runs, waits = effects(simulate(NOW, "fifo"), simulate(then, "fifo"), {"waits": 300.0})
    assert not runs.differs
    assert waits.differs
    assert waits.before.starts_s >= 600.0
    assert waits.after.starts_s <= 60.0
    assert waits.after.waited_s == waits.after.starts_s + 300.0
    assert waits.after.gpus == (4,)


def test_a_job_that_comes_besides_has_no_before():
    """And it is concerned whatever becomes of it."""
    then = Scenario(name="then", nodes=NOW.nodes, jobs=(*NOW.jobs, job("new", 4)), queues=NOW.queues)
    found = effects(simulate(NOW, "fifo"), simulate(then, "fifo"), {})
    assert [(each.job, each.before is None, each.differs) for each in found][-1] == ("new", True, True)


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ({"": 8}, (8, 8, 2)),
        ({"deserved": 5}, (5, 6, 2)),
        ({"capability": 7}, (4, 7, 2)),
        ({"guarantee": 0, "deserved": 3}, (3, 6, 0)),
    ],
)
def test_a_quota_is_another_and_stays_within_its_capability(shares, found):
    """Without a name it is what the queue deserves, where it says that."""
    _, queue = changed(NOW, shares={"research": shares}).queues
    assert (queue.deserved, queue.capability, queue.guarantee) == found


def test_of_a_queue_that_says_nothing_a_quota_is_its_capability():
    """There is nothing else that it is limited by."""
    queue, _ = changed(NOW, shares={"default": {"": 3}}).queues
    assert (queue.deserved, queue.capability) == (None, 3)


def test_queues_that_there_are_not_are_all_named():
    """With those that there are."""
    with pytest.raises(SpecError) as caught:
        changed(NOW, shares={"a": {"": 1}, "research": {"": 1}, "b": {"": 1}})
    assert [problem.message for problem in caught.value.problems] == ["there is no queue a", "there is no queue b"]
    assert "research" in caught.value.problems[0].remedy


def test_gpus_come_on_nodes_like_those_that_there_are():
    """The last may be smaller; where there is one class, they are of it."""
    assert [(node.gpus, node.gpu_class) for node in more_gpus(NOW, 10, "")] == [(4, "a100"), (4, "a100"), (2, "a100")]
    assert [(node.gpus, node.gpu_class) for node in more_nodes(NOW, 2, "h100", 8)] == [(8, "h100"), (8, "h100")]
