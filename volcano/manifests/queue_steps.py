# SPDX-License-Identifier: Apache-2.0
"""The steps by which a cluster's queues become a tree's: what each does, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kfp_volcano.schemas.names import QUEUE_TREE_LABEL, short_resource
from kfp_volcano.volcano.manifests.pointer import pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Action", "Change", "Plan", "Step", "changes", "patch"]

Action = Literal["create", "update", "move", "close", "open", "delete"]


@dataclass(frozen=True, slots=True)
class Change:
    """One field of an object, before and after; None where it is not there."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call to the cluster."""

    action: Action
    kind: Literal["Queue", "ResourceQuota"]
    name: str
    reason: str
    namespace: str = ""
    changes: tuple[Change, ...] = ()
    """What it changes, for people."""
    manifest: Mapping[str, Any] | None = None
    """What `create` creates."""
    patch: tuple[Mapping[str, Any], ...] = ()
    """The JSON Patch of `update` and `move`; it tests that what it replaces is as it was when the plan was made."""
    awaits: str = ""
    """A queue that has to show no allocated pods first: its former queues have left it, and Volcano counts anew once
    a scheduling cycle."""

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.action} {self.kind} {place}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The way from what is there to what a tree says; without steps where there is nothing to do."""

    tree: str
    steps: tuple[Step, ...] = ()
    """In an order in which Volcano refuses none."""
    differences: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)
    """What differs now, by object (`Queue research`), however many steps it takes."""
    kept: tuple[str, ...] = ()
    """Queues that have left the tree and stay for the time being, each with the reason."""

    @property
    def deletions(self) -> tuple[Step, ...]:
        """The steps that cannot be undone."""
        return tuple(step for step in self.steps if step.action == "delete")


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """What differs between two objects' specs, amounts one by one under the names that trees give them."""
    flat_before, flat_after = dict(_flat(before, "")), dict(_flat(after, ""))
    return tuple(
        Change(key, flat_before.get(key), flat_after.get(key))
        for key in sorted({*flat_before, *flat_after})
        if flat_before.get(key) != flat_after.get(key)
    )


def patch(
    metadata: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any], *, owner: str | None
) -> tuple[Mapping[str, Any], ...]:
    """The JSON Patch (RFC 6902) that takes fields of an object's spec from `before` to `after`, and sets its owner.

    `metadata` is the object's at that time; `owner` the tree it shall belong to, None where it shall belong to none.
    It tests that it meets that very object, and every value that it replaces.
    """
    operations: list[Mapping[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}]
    for key in sorted({*before, *after}):
        path = f"/spec/{key}"
        if before.get(key) == after.get(key):
            continue
        if key in before:
            operations.append({"op": "test", "path": path, "value": before[key]})
        if key in after:
            operations.append({"op": "add", "path": path, "value": after[key]})
        else:
            operations.append({"op": "remove", "path": path})
    return (*operations, *_owned(metadata.get("labels"), owner))


def _owned(labels: Mapping[str, str] | None, owner: str | None) -> Sequence[Mapping[str, Any]]:
    path = pointer("metadata", "labels", QUEUE_TREE_LABEL)
    if (labels or {}).get(QUEUE_TREE_LABEL) == owner:
        return ()
    if owner is None:
        return ({"op": "remove", "path": path},)
    if not labels:
        return ({"op": "add", "path": "/metadata/labels", "value": {QUEUE_TREE_LABEL: owner}},)
    return ({"op": "add", "path": path, "value": owner},)


def _flat(spec: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, item in spec.items():
        if key == "guarantee":
            yield from _flat(item.get("resource") or {}, "guarantee.")
        elif isinstance(item, dict):
            yield from _flat(item, f"{key}.")
        else:
            yield prefix + (short_resource(key) if prefix else key), item


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)
