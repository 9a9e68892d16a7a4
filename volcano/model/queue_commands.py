"""Commands that open and close queues, and how a closed one empties.

Sources: pkg/controllers/queue/{queue_controller_action,queue_controller_handler}.go and state/, Volcano 1.15.1. A
queue below a closed one is closed with it, and opened with it where it was closed for that reason only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.objects import Change, Delete, Manifest, Objects, Update, key_of, status_of
from kfp_volcano.volcano.model.queues import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["close_empty", "obey"]

_CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
_SHUT = frozenset({"Closed", "Closing"})


def obey(objects: Objects, command: Manifest) -> list[Change]:
    """What a Command leads to: it is deleted, and a queue that it is for opens or closes."""
    target = command.get("target") or {}
    queue = objects.get("Queue", {}).get(("", target.get("name", "")))
    if target.get("kind") != "Queue":
        return []
    changes: list[Change] = [Delete("Command", key_of(command))]
    if queue is not None and queue["metadata"]["uid"] == target.get("uid"):
        if command.get("action") == "CloseQueue" and target["name"] != ROOT:
            changes.extend(_close(objects, queue))
        elif command.get("action") == "OpenQueue":
            changes.extend(_open(objects, queue))
    return changes


def close_empty(objects: Objects) -> list[Change]:
    """Closing queues without PodGroups are closed."""
    return [
        _with(queue, "Closed")
        for queue in objects.get("Queue", {}).values()
        if _state(queue) == "Closing" and not _used(objects, queue)
    ]


def _close(objects: Objects, queue: Manifest, *, by_parent: bool = False) -> Iterator[Change]:
    if _state(queue) in _SHUT:
        return
    yield _with(queue, "Closing" if _used(objects, queue) else "Closed", closed_by_parent=by_parent)
    for child in _below(objects, queue):
        yield from _close(objects, child, by_parent=True)


def _open(objects: Objects, queue: Manifest) -> Iterator[Change]:
    parent = objects.get("Queue", {}).get(("", queue["spec"].get("parent", ROOT)))
    if parent is None or _state(parent) not in _SHUT:
        yield from _opened(objects, queue)


def _opened(objects: Objects, queue: Manifest) -> Iterator[Change]:
    yield _with(queue, "Open", closed_by_parent=False)
    for child in _below(objects, queue):
        if (child["metadata"].get("annotations") or {}).get(_CLOSED_BY_PARENT) == "true":
            yield from _opened(objects, child)


def _with(queue: Manifest, state: str, *, closed_by_parent: bool | None = None) -> Update:
    metadata = queue["metadata"]
    if closed_by_parent is not None:
        noted = {_CLOSED_BY_PARENT: str(closed_by_parent).lower()}
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **noted}}
    return Update({**queue, "metadata": metadata, "status": {**status_of(queue), "state": state}})


def _below(objects: Objects, queue: Manifest) -> list[Manifest]:
    name = queue["metadata"]["name"]
    return [each for each in objects.get("Queue", {}).values() if each["spec"].get("parent") == name]


def _used(objects: Objects, queue: Manifest) -> bool:
    name = queue["metadata"]["name"]
    return any(group["spec"].get("queue") == name for group in objects.get("PodGroup", {}).values())


def _state(queue: Manifest) -> str:
    return str(status_of(queue).get("state", ""))
