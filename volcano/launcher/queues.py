# SPDX-License-Identifier: Apache-2.0
"""A tree of queues brought about on a cluster: read what is there, carry out the steps of a plan."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.errors import ClusterError, ConflictError, UnavailableError
from kfp_volcano.volcano.cluster.awaiting import until
from kfp_volcano.volcano.manifests.queue_state import Objects, occupants
from kfp_volcano.volcano.manifests.queues import queue_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.manifests.queue_steps import Plan, Step

__all__ = ["Applied", "apply", "read"]

PATIENCE_S = 30.0
"""How long Volcano may take to open or close a queue, or to count its pods; it does so within a second or two."""

_COMMANDS = {"close": "CloseQueue", "open": "OpenQueue"}
_CLOSED = frozenset({"Closed", "Closing"})


@dataclass(slots=True)
class Applied:
    """How far a plan has been carried out."""

    done: list[Step] = field(default_factory=list)
    refused: Step | None = None
    """The step at which it stopped; the steps after it have not been tried."""
    error: ClusterError | None = None
    """Why."""


def read(cluster: Cluster) -> Objects:
    """What a plan is made from, as it is now."""
    return Objects(
        queues=cluster.list("Queue")[0],
        jobs=cluster.list("Job")[0],
        pod_groups=cluster.list("PodGroup")[0],
        quotas=cluster.list("ResourceQuota")[0],
    )


def apply(cluster: Cluster, plan: Plan, *, tell: Callable[[Step], None], patience_s: float = PATIENCE_S) -> Applied:
    """Carry out the steps of a plan, one after the other, and stop at the first that is refused.

    What has been done stays: plan again from there. `tell` hears of each step before it is tried.
    """
    applied = Applied()
    for step in plan.steps:
        tell(step)
        try:
            _perform(cluster, step, patience_s)
        except ClusterError as error:
            applied.refused, applied.error = step, error
            return applied
        applied.done.append(step)
    return applied


def _perform(cluster: Cluster, step: Step, patience_s: float) -> None:
    if step.awaits:
        _wait(cluster, step.awaits, lambda queue: not _pods(queue), "still has allocated pods", patience_s)
    match step.action:
        case "create" if step.manifest:
            cluster.create(dict(step.manifest))
            if step.kind == "Queue":  # Volcano takes Jobs in it from then on
                _wait(cluster, step.name, lambda queue: _state(queue) != "", "has not been opened", patience_s)
        case "update" | "move":
            cluster.patch(step.kind, step.name, step.namespace, step.patch)
        case "close" | "open":
            _command(cluster, step, patience_s)
        case "delete":
            if step.kind == "Queue":
                _ensure_empty(cluster, step.name)
            cluster.delete(step.kind, step.name, step.namespace)


def _command(cluster: Cluster, step: Step, patience_s: float) -> None:
    with suppress(ConflictError):  # the same Command waits to be obeyed already
        cluster.create(queue_command(cluster.get("Queue", step.name), _COMMANDS[step.action]))
    close = step.action == "close"
    _wait(
        cluster,
        step.name,
        lambda queue: (_state(queue) in _CLOSED) is close,
        "has not been closed" if close else "has not been opened",
        patience_s,
    )


def _ensure_empty(cluster: Cluster, name: str) -> None:
    """Raise ConflictError unless nothing is in a queue; as it is closed, nothing can come any more."""
    inside = occupants(read(cluster)).get(name)
    if inside:
        raise ConflictError(f"queue {name} has {', '.join(inside)} since the plan was made: plan again")


def _wait(cluster: Cluster, name: str, holds: Callable[[Manifest], bool], otherwise: str, patience_s: float) -> None:
    """Wait until something holds of a queue. Raises UnavailableError where it does not in time."""

    def find(queues: list[Manifest]) -> Manifest | None:
        return next((queue for queue in queues if queue["metadata"]["name"] == name and holds(queue)), None)

    if until(cluster, "Queue", "", find, patience_s=patience_s) is None:
        raise UnavailableError(f"queue {name} {otherwise} after {patience_s:g} s: does Volcano's controller run?")


def _state(queue: Manifest) -> str:
    return str((queue.get("status") or {}).get("state") or "")


def _pods(queue: Manifest) -> int:
    return int(((queue.get("status") or {}).get("allocated") or {}).get("pods", 0))
