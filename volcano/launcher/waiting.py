"""Why a gang does not run, also where the scheduler says nothing: before its queue has let it in.

Of a gang that is not let in Volcano (1.15) writes no condition on the PodGroup, only an Event that names the resource
that is short. How much is asked for and how much is left can be read from the PodGroup and its queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.errors import ForbiddenError
from kfp_volcano.volcano.launcher.ending import explain_wait
from kfp_volcano.volcano.model.objects import key_of, status_of
from kfp_volcano.volcano.model.queues import queue_tree
from kfp_volcano.volcano.model.resources import add, exceeded, format_quantity, minus, resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["Waiting", "kept_out"]

LOOK_S = 10.0
"""How often queues are read while a gang is not let in."""


class Waiting:
    """Says why a Job's gang waits, turn by turn.

    Args:
        cluster: Where the Job is.
        clock: Unix seconds.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._look_at = 0.0
        self._found: str | None = None

    def why(self, podgroup: Manifest | None) -> str | None:
        """A sentence; None where the gang does not wait, or there is nothing to be said of it."""
        if podgroup is None or not _is_outside(podgroup):
            return explain_wait(podgroup)
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + LOOK_S
            try:
                self._found = kept_out(podgroup, self._cluster.list("Queue")[0])
            except ForbiddenError:
                self._found = f"queue {_queue(podgroup)} has not let the gang in"
        return self._found


def kept_out(podgroup: Manifest, queues: Iterable[Manifest]) -> str | None:
    """What a queue, or one above it, lacks for a gang that it has not let in; None where it lacks nothing."""
    by_name = {key_of(queue): queue for queue in queues}
    share = queue_tree({"Queue": by_name}).get(_queue(podgroup))
    if share is None:
        return None
    needed = resources(podgroup["spec"].get("minResources"))
    for each in share.lineage:
        used = resources(status_of(by_name["", each.name]).get("allocated"))
        short = exceeded(add(used, needed), each.limit, needed)
        if short:
            asked = ", ".join(f"{format_quantity(needed[name])} {name}" for name in short)
            left = minus(each.limit, used)
            has = ", ".join(f"{format_quantity(left[name])} {name}" for name in short)
            return f"the gang needs {asked}; queue {each.name} has {has} left"
    return None


def _is_outside(podgroup: Manifest) -> bool:
    """Whether its queue has not let it in, and the scheduler has not said why."""
    return status_of(podgroup).get("phase", "Pending") == "Pending" and explain_wait(podgroup) is None


def _queue(podgroup: Manifest) -> str:
    return str(podgroup["spec"].get("queue") or "default")
