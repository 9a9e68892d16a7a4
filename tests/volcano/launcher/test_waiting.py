# SPDX-License-Identifier: Apache-2.0
"""Why a Job waits, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.errors import ForbiddenError
from kfp_volcano.volcano.launcher.waiting import Waiting, explain_wait


def gang(phase: str = "Pending", said: str = "", **needs: str) -> dict[str, Any]:
    """A PodGroup that needs so much."""
    said_so = [{"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": said}]
    return {
        "metadata": {"name": "job-1"},
        "spec": {
            "queue": "research",
            "minResources": {key.replace("gpu", "nvidia.com/gpu"): v for key, v in needs.items()},
        },
        "status": {"phase": phase, "conditions": said_so if said else []},
    }


def queue(
    state: str = "Open", *, gpus: str = "8", taken: str = "3", parent: str = "root", **more: str
) -> dict[str, Any]:
    """A queue with so many GPUs."""
    return {
        "metadata": {"name": "research"},
        "spec": {"parent": parent, "capability": {"nvidia.com/gpu": gpus, **more} if gpus else {}},
        "status": {"state": state, "allocated": {"nvidia.com/gpu": taken}},
    }


ROOT = {"metadata": {"name": "root"}, "spec": {}}
TEAM = {
    "metadata": {"name": "team"},
    "spec": {"parent": "root", "capability": {"nvidia.com/gpu": "8"}},
    "status": {"state": "Open", "allocated": {"nvidia.com/gpu": "6"}},
}


def pod(name: str, *, phase: str = "Pending", **status: Any) -> dict[str, Any]:
    """A pod that stands so."""
    return {"metadata": {"name": name}, "spec": {}, "status": {"phase": phase, **status}}


@pytest.mark.parametrize(
    ("podgroup", "its_queue", "why"),
    [
        (None, None, None),
        (gang(), None, None),
        (gang("Running", "old news", gpu="8"), queue(), None),
        (gang("Completed", "old news", gpu="8"), queue(), None),
        (gang(said="3/3 tasks unschedulable"), None, "3/3 tasks unschedulable"),
        (gang(gpu="8"), queue(), "the gang needs 8 GPUs; queue research has 5 left"),
        (gang(gpu="1"), queue(taken="8"), "the gang needs 1 GPU; queue research has 0 left"),
        (gang(gpu="8"), queue(taken="9"), "the gang needs 8 GPUs; queue research has 0 left"),
        (gang(gpu="5"), queue(), None),
        (gang(gpu="8"), queue(gpus="", taken="0", parent="team"), "the gang needs 8 GPUs; queue team has 2 left"),
        (gang(gpu="5", said="no node fits"), queue(), "no node fits"),
        (
            gang(gpu="8", cpu="4"),
            queue(cpu="2"),
            "the gang needs 8 GPUs and cpu 4; queue research has 5 and cpu 2 left",
        ),
        (gang(gpu="1"), queue("Closed"), "queue research is Closed: it lets no gang in"),
        (
            gang(gpu="8", said="no node fits"),
            queue(),
            "the gang needs 8 GPUs; queue research has 5 left (the scheduler: no node fits)",
        ),
    ],
)
def test_a_gang_waits_for_what_its_queue_or_the_nodes_lack(podgroup, its_queue, why):
    """What the queue has left is said where that is the reason, and the scheduler's own words beside it."""
    assert explain_wait(podgroup, queues=[ROOT, TEAM, its_queue] if its_queue else []) == why


@pytest.mark.parametrize("list_", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize(
    "reason", ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "CrashLoopBackOff"]
)
def test_a_container_that_cannot_start_is_named(list_, reason):
    """In the kubelet's words, before anything else, for no queue will help."""
    waiting = {"name": "main", "state": {"waiting": {"reason": reason, "message": "not found"}}}
    pods = [pod("job-core-0"), pod("job-core-1", **{list_: [waiting]})]
    why = f"container main of job-core-1 does not start: {reason}: not found"
    assert explain_wait(gang("Running"), pods=pods) == why
    assert explain_wait(gang(gpu="8"), queues=[ROOT, queue()], pods=pods) == why


def test_a_container_that_is_being_made_is_no_news():
    """Every pod is in that state for a moment."""
    waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    assert explain_wait(gang("Running"), pods=[pod("job-core-0", containerStatuses=[waiting])]) is None


def test_workers_beyond_the_gang_may_wait_for_a_node():
    """The gang runs; the number of the others and the scheduler's words are told."""
    unplaced = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]}
    pods = [pod("job-core-0", phase="Running"), pod("job-elastic-0", **unplaced), pod("job-elastic-1", **unplaced)]
    assert explain_wait(gang("Running"), pods=pods) == "2 workers beyond the gang wait for a node: 0/2 nodes"
    assert explain_wait(gang("Running"), pods=pods[:2]) == "a worker beyond the gang waits for a node: 0/2 nodes"


class _Queues:
    """A cluster that counts how often a queue is read, and may refuse."""

    def __init__(self, found: dict[str, Any] | None) -> None:
        self.found, self.reads = found, 0

    def list(self, kind: str) -> tuple[list[dict[str, Any]], str]:
        assert kind == "Queue"
        self.reads += 1
        if self.found is None:
            raise ForbiddenError("no")
        return [ROOT, self.found], "1"


def test_the_queue_is_read_now_and_then_and_only_while_the_gang_waits():
    """A Job that waits for days is not to cost a request a second."""
    now = [0.0]
    cluster = _Queues(queue())
    waiting = Waiting(cluster, lambda: now[0])  # type: ignore[arg-type]
    assert waiting.why(gang("Running"), ()) is None
    assert cluster.reads == 0
    for now[0] in range(100):
        assert waiting.why(gang(gpu="8"), ()) == "the gang needs 8 GPUs; queue research has 5 left"
    assert cluster.reads == 10


def test_who_may_not_read_queues_hears_the_scheduler():
    """The right to read queues is one that a run can do without."""
    waiting = Waiting(_Queues(None), lambda: 0.0)  # type: ignore[arg-type]
    assert waiting.why(gang(gpu="8", said="no node fits"), ()) == "no node fits"


def test_a_gang_that_is_kept_out_without_a_word_is_told_after_a_moment():
    """Volcano notes nothing on it; and every gang is outside until the scheduler comes by."""
    now = [0.0]
    waiting = Waiting(_Queues(None), lambda: now[0])  # type: ignore[arg-type]
    told = []
    for now[0], phase in enumerate(["", "Pending", "Pending", "Pending", "Pending", "Pending", "Inqueue", "Pending"]):
        told.append(waiting.why(gang(phase), ()))
    assert told == [None, None, None, None, None, "queue research has not let the gang in", None, None]
