"""Why a Job does not run, or not with all its workers, in a sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ClusterError
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.objects import container_statuses, phase_of, status_of
from kfp_volcano.volcano.model.resources import format_quantity, resources

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
"""How often the queue of a gang that waits is read."""


class Waiting:
    """Explains one Job's wait, looking at its queue now and then if that is allowed."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._queue: Manifest | None = None
        self._read_at = -math.inf

    def why(self, podgroup: Manifest | None, pods: Iterable[Manifest]) -> str | None:
        """See `explain_wait`."""
        if podgroup is not None and _waits(podgroup) and self._clock() >= self._read_at + _READ_S:
            self._read_at = self._clock()
            try:
                self._queue = self._cluster.get("Queue", podgroup["spec"].get("queue") or "default")
            except ClusterError:  # it may not be ours to read; then the scheduler's words have to do
                self._queue = None
        return explain_wait(podgroup, queue=self._queue, pods=pods)


def explain_wait(
    podgroup: Manifest | None, *, queue: Manifest | None = None, pods: Iterable[Manifest] = ()
) -> str | None:
    """Why a gang does not run, or some of its pods do not; None where nothing is known to wait. Pure.

    Args:
        podgroup: The Job's PodGroup, None while it has none.
        queue: The Job's queue, for what is left of it.
        pods: The Job's pods.
    """
    pods = list(pods)
    stuck = next(_stuck(pods), None)
    if stuck:
        return stuck
    if podgroup is not None and _waits(podgroup):
        said = _scheduler(podgroup)
        short = _short_of(podgroup, queue) if queue else None
        return f"{short} (the scheduler: {said})" if short and said else short or said
    return _surplus(pods)


def _waits(podgroup: Manifest) -> bool:
    return phase_of(podgroup) not in {"Running", "Completed"}


def _scheduler(podgroup: Manifest) -> str | None:
    conditions = status_of(podgroup).get("conditions") or ()
    waiting = [each for each in conditions if each.get("type") == "Unschedulable" and each.get("status") == "True"]
    return str(waiting[-1].get("message") or waiting[-1].get("reason")) if waiting else None


def _short_of(podgroup: Manifest, queue: Manifest) -> str | None:
    """What the queue has too little of, or that it takes nobody in."""
    name, state = queue["metadata"]["name"], status_of(queue).get("state") or "Open"
    if state != "Open":
        return f"queue {name} is {state}: it lets no gang in"
    needed = resources(podgroup["spec"].get("minResources"))
    capability, taken = resources(queue["spec"].get("capability")), resources(status_of(queue).get("allocated"))
    left = {name: max(0, most - taken.get(name, 0)) for name, most in capability.items()}
    short = sorted(
        (each for each in needed if each in left and needed[each] > left[each]), key=lambda each: each != GPU
    )
    if not short:
        return None
    amounts = [_amount(each, needed[each]) for each in short]
    rest = [format_quantity(left[each]) if each == GPU else _amount(each, left[each]) for each in short]
    return f"the gang needs {' and '.join(amounts)}; queue {name} has {' and '.join(rest)} left"


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
