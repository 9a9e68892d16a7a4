"""Why a gang waits, in the scheduler's words, or in what its queue lacks."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.errors import ForbiddenError
from kfp_volcano.volcano.launcher.waiting import LOOK_S, Waiting, kept_out

GPU = "nvidia.com/gpu"


def queue(name: str, used: str = "0", parent: str = "root", **capability: str) -> dict[str, Any]:
    spec = {"parent": parent, "capability": {GPU: capability["gpus"]} if capability else {}}
    return {"metadata": {"name": name}, "spec": spec, "status": {"state": "Open", "allocated": {GPU: used}}}


def group(gpus: str = "8", **status: Any) -> dict[str, Any]:
    return {"spec": {"queue": "research", "minResources": {GPU: gpus, "pods": "9"}}, "status": status}


ROOT = {"metadata": {"name": "root"}, "spec": {}}


class Queues:
    """A cluster that has only queues, or shows none."""

    def __init__(self, *queues: Any, forbidden: bool = False) -> None:
        self.queues = queues
        self.forbidden = forbidden
        self.asked = 0

    def list(self, kind: str) -> tuple[list[Any], str]:
        assert kind == "Queue"
        self.asked += 1
        if self.forbidden:
            raise ForbiddenError("no")
        return list(self.queues), "1"


@pytest.mark.parametrize(
    ("queues", "why"),
    [
        ([queue("research", "3", gpus="8")], f"the gang needs 8 {GPU}; queue research has 5 {GPU} left"),
        ([queue("research", "0", gpus="8")], None),
        (
            [queue("team", "6", gpus="8"), queue("research", parent="team")],
            f"the gang needs 8 {GPU}; queue team has 2 {GPU} left",
        ),
        ([], None),
    ],
    ids=["its queue", "nothing", "one above it", "no queue"],
)
def test_what_a_queue_lacks_is_said_in_numbers(queues: list[Any], why: str | None) -> None:
    """How much the gang needs, and how much the queue, or the one above it that is short, has left."""
    assert kept_out(group(), [ROOT, *queues]) == why


def test_the_scheduler_s_own_reason_goes_first() -> None:
    """Where it gave one, queues are not read; nor where the gang runs."""
    cluster = Queues()
    waiting = Waiting(cluster, lambda: 100.0)  # type: ignore[arg-type]
    condition = {"type": "Unschedulable", "status": "True", "message": "2/2 tasks in gang unschedulable"}
    assert waiting.why(group(phase="Inqueue", conditions=[condition])) == condition["message"]
    assert waiting.why(group(phase="Running")) is None
    assert waiting.why(None) is None
    assert cluster.asked == 0


def test_queues_are_read_seldom() -> None:
    """Once in a while, however often a follower looks; who may not read them still says that the gang is kept out."""
    now = 100.0
    cluster = Queues(ROOT, queue("research", "3", gpus="8"))
    waiting = Waiting(cluster, lambda: now)  # type: ignore[arg-type]
    said = {waiting.why(group(phase="Pending")) for _ in range(5)}
    assert said == {f"the gang needs 8 {GPU}; queue research has 5 {GPU} left"}
    assert cluster.asked == 1
    now += LOOK_S
    cluster.forbidden = True
    assert waiting.why(group(phase="Pending")) == "queue research has not let the gang in"
    assert cluster.asked == 2
