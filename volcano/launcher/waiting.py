# SPDX-License-Identifier: Apache-2.0
"""Why a Job does not run, or not with all its workers, in a sentence.

Of a gang that its queue has not let in Volcano (1.15) writes no condition on the PodGroup, only an Event that names the
resource that is short. How much is asked for and how much is left can be read from the PodGroup and the queues.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ClusterError
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.objects import container_statuses, key_of, phase_of, status_of
from kfp_volcano.volcano.model.queues import queue_tree
from kfp_volcano.volcano.model.resources import add, exceeded, format_quantity, minus, resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["Waiting", "explain_wait"]

_STUCK = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""The kubelet's reasons for a container that does not start, or not again (pkg/kubelet/{images,container})."""
_READ_S = 10.0
"""How often queues are read while a gang waits, seconds."""
_MOMENT_S = 5.0
"""Volcano's scheduler looks at its queues once a second."""


class Waiting:
    """Explains one Job's wait, looking at its queue now and then if that is allowed."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._queues: list[Manifest] = []
        self._read_at = -math.inf
        self._outside_since: float | None = None

    def why(self, podgroup: Manifest | None, pods: Iterable[Manifest]) -> str | None:
        """See `explain_wait`."""
        if podgroup is not None and _waits(podgroup) and self._clock() >= self._read_at + _READ_S:
            self._read_at = self._clock()
            try:
                self._queues = self._cluster.list("Queue")[0]
            except ClusterError:  # they may not be ours to read; then the scheduler's words have to do
                self._queues = []
        return explain_wait(podgroup, queues=self._queues, pods=pods) or self._kept_out(podgroup)

    def _kept_out(self, podgroup: Manifest | None) -> str | None:
        """That the queue has not let the gang in, where no more is known; every gang is outside for a moment."""
        if podgroup is None or phase_of(podgroup) not in {"", "Pending"}:
            self._outside_since = None
            return None
        if self._outside_since is None:
            self._outside_since = self._clock()
        long_enough = self._clock() >= self._outside_since + _MOMENT_S
        return f"queue {_queue_of(podgroup)} has not let the gang in" if long_enough else None


def explain_wait(
    podgroup: Manifest | None, *, queues: Iterable[Manifest] = (), pods: Iterable[Manifest] = ()
) -> str | None:
    """Why a gang does not run, or some of its pods do not; None where nothing is known to wait. Pure.

    Args:
        podgroup: The Job's PodGroup, None while it has none.
        queues: All queues, for what is left of the Job's and those above it; none where they may not be read.
        pods: The Job's pods.
    """
    pods = list(pods)
    stuck = next(_stuck(pods), None)
    if stuck:
        return stuck
    if podgroup is not None and _waits(podgroup):
        said, short = _scheduler(podgroup), _short_of(podgroup, queues)
        if short:
            return f"{short} (the scheduler: {said})" if said else short
        return said
    return _surplus(pods)


def _waits(podgroup: Manifest) -> bool:
    return phase_of(podgroup) not in {"Running", "Completed"}


def _scheduler(podgroup: Manifest) -> str | None:
    conditions = status_of(podgroup).get("conditions") or ()
    waiting = [each for each in conditions if each.get("type") == "Unschedulable" and each.get("status") == "True"]
    return str(waiting[-1].get("message") or waiting[-1].get("reason")) if waiting else None


def _queue_of(podgroup: Manifest) -> str:
    return str(podgroup["spec"].get("queue") or "default")


def _short_of(podgroup: Manifest, queues: Iterable[Manifest]) -> str | None:
    """What the gang's queue, or one above it, has too little of, or that the queue takes nobody in."""
    by_key = {key_of(queue): queue for queue in queues}
    share = queue_tree({"Queue": by_key}).get(_queue_of(podgroup))
    if share is None:
        return None
    state = status_of(by_key["", share.name]).get("state") or "Open"
    if state != "Open":
        return f"queue {share.name} is {state}: it lets no gang in"
    needed = resources(podgroup["spec"].get("minResources"))
    for each in share.lineage:
        taken = resources(status_of(by_key["", each.name]).get("allocated"))
        short = sorted(exceeded(add(taken, needed), each.limit, needed), key=lambda name: name != GPU)
        if short:
            left = minus(each.limit, taken)
            asked = " and ".join(_amount(name, needed[name]) for name in short)
            rest = " and ".join(
                format_quantity(max(0, left[name])) if name == GPU else _amount(name, max(0, left[name]))
                for name in short
            )
            return f"the gang needs {asked}; queue {each.name} has {rest} left"
    return None


def _amount(resource: str, amount: int) -> str:
    text = format_quantity(amount)
    return f"{text} GPU{'' if text == '1' else 's'}" if resource == GPU else f"{resource} {text}"


def _stuck(pods: Iterable[Manifest]) -> Iterator[str]:
    """Containers that the kubelet cannot start, in its words."""
    for pod in pods:
        for each in container_statuses(pod):
            waiting: Mapping[str, Any] = (each.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _STUCK:
                message = f": {waiting['message']}" if waiting.get("message") else ""
                name = pod["metadata"]["name"]
                yield f"container {each['name']} of {name} does not start: {waiting['reason']}{message}"


def _surplus(pods: Iterable[Manifest]) -> str | None:
    """Workers beyond the gang for which there is no node."""
    unplaced = [
        condition.get("message") or condition.get("reason")
        for pod in pods
        if phase_of(pod) == "Pending" and not pod["spec"].get("nodeName")
        for condition in status_of(pod).get("conditions") or ()
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
    ]
    if not unplaced:
        return None
    count = "a worker beyond the gang waits" if len(unplaced) == 1 else f"{len(unplaced)} workers beyond the gang wait"
    return f"{count} for a node: {unplaced[0]}"
