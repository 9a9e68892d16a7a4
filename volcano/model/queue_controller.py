# SPDX-License-Identifier: Apache-2.0
"""The queue controller: queues get their parent, open, and close with all that is below them.

Sources: pkg/controllers/queue (queue_controller_action.go, queue_controller_handler.go, state), Volcano 1.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.objects import Change, Manifest, Objects, Transition, Update, key_of, phase_of, status_of
from kfp_volcano.volcano.model.queues import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["QueueRequest", "queue_request_for", "reconcile_queue"]

SYNC, OPEN, CLOSE = "SyncQueue", "OpenQueue", "CloseQueue"
_CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
_SHUT = frozenset({"Closed", "Closing"})


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """The controller shall look at a queue, or open or close it."""

    queue: str
    action: str = SYNC


def queue_request_for(transition: Transition) -> QueueRequest | None:
    """The request that a change of an object leads to, if any."""
    old, new = transition.old, transition.new
    if transition.kind == "Queue" and new is not None:
        moved = old is None or old["spec"].get("parent") != new["spec"].get("parent")
        return QueueRequest(key_of(new)[1]) if moved else None
    if transition.kind == "PodGroup":
        group = new or old or {}
        if old is not None and new is not None and phase_of(old) == phase_of(new):
            return None
        return QueueRequest(group["spec"]["queue"])
    return None


def reconcile_queue(objects: Objects, request: QueueRequest) -> tuple[list[Change], list[QueueRequest]]:
    """What a request to the queue controller changes, and what it asks of other queues."""
    queue = objects.get("Queue", {}).get(("", request.queue))
    if queue is None:
        return [], []
    if request.queue != ROOT and not queue["spec"].get("parent"):
        queue = {**queue, "spec": {**queue["spec"], "parent": ROOT}}
    state = str(status_of(queue).get("state", ""))
    if request.action == OPEN:
        return _open(objects, queue, state)
    if request.action == CLOSE and state not in _SHUT:
        return _close(objects, queue)
    return _sync(objects, queue, state)


def _sync(objects: Objects, queue: Manifest, state: str) -> tuple[list[Change], list[QueueRequest]]:
    """A new queue opens; one that closes is closed when it is empty; a queue does as its parent did."""
    name = key_of(queue)[1]
    settled = state or "Open"
    if state == "Closing" and not _in_use(objects, name):
        settled = "Closed"
    changes = list(_with_state(queue, settled))
    parent = objects["Queue"].get(("", queue["spec"].get("parent", "")))
    if parent is None or name == ROOT:
        return changes, []
    above = status_of(parent).get("state")
    if above in _SHUT and settled not in _SHUT:
        return _marked(changes, queue, by_parent=True), [QueueRequest(name, CLOSE)]
    if above == "Open" and settled in _SHUT and _closed_by_parent(queue):
        return changes, [QueueRequest(name, OPEN)]
    return changes, []


def _open(objects: Objects, queue: Manifest, state: str) -> tuple[list[Change], list[QueueRequest]]:
    """Not while the parent is closed; what had been closed with the queue opens again with it."""
    parent = objects["Queue"].get(("", queue["spec"].get("parent", "")))
    if state == "Open" or (parent is not None and status_of(parent).get("state") in _SHUT):
        return [], []
    below = [QueueRequest(key_of(child)[1], OPEN) for child in _children(objects, queue) if _closed_by_parent(child)]
    return _marked(list(_with_state(queue, "Open")), queue, by_parent=False), below


def _close(objects: Objects, queue: Manifest) -> tuple[list[Change], list[QueueRequest]]:
    """A queue with PodGroups is closing until they are gone; the queues below are closed with it."""
    name = key_of(queue)[1]
    if name == ROOT:
        return [], []
    changes: list[Change] = []
    below = []
    for child in _children(objects, queue):
        if status_of(child).get("state") not in _SHUT:
            changes += _marked([], child, by_parent=True)
            below.append(QueueRequest(key_of(child)[1], CLOSE))
    changes += _with_state(queue, "Closing" if _in_use(objects, name) else "Closed")
    return changes, below


def _with_state(queue: Manifest, state: str) -> Iterator[Change]:
    yield Update({**queue, "status": {"allocated": {}, **status_of(queue), "state": state}})


def _marked(changes: list[Change], queue: Manifest, *, by_parent: bool) -> list[Change]:
    """The changes, the last of a queue with a note of whether its parent closed it."""
    latest = next((change.manifest for change in reversed(changes) if isinstance(change, Update)), queue)
    annotations = latest["metadata"].get("annotations") or {}
    wanted = "true" if by_parent else "false"
    if not by_parent and _CLOSED_BY_PARENT not in annotations:
        return changes
    marked = {**latest, "metadata": {**latest["metadata"], "annotations": {**annotations, _CLOSED_BY_PARENT: wanted}}}
    return [*changes, Update(marked)]


def _closed_by_parent(queue: Manifest) -> bool:
    return (queue["metadata"].get("annotations") or {}).get(_CLOSED_BY_PARENT) == "true"


def _children(objects: Objects, queue: Manifest) -> list[Manifest]:
    name = key_of(queue)[1]
    return [each for each in objects["Queue"].values() if each["spec"].get("parent") == name]


def _in_use(objects: Objects, name: str) -> bool:
    return any(group["spec"]["queue"] == name for group in objects.get("PodGroup", {}).values())
