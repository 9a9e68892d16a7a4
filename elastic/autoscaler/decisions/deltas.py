# SPDX-License-Identifier: Apache-2.0
"""What has changed from one snapshot of a queue to the next, as JSON; and the next one again, from that. Pure.

Jobs, gangs and whatever else has a key are told one by one, and of those that were there only the fields that differ:
a log of a queue's turns grows with what happens in it and not with its size.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from kfp_volcano.elastic.policies.memory import JobMemory, Memory
from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
from kfp_volcano.schemas.packing import changed_fields, packer, unpacker, with_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["applied", "blank", "delta"]

_HINTS = get_type_hints(QueueSnapshot)
_KEYED = {"jobs": "key", "pending": "since", "claims": "since", "ranked": "key"}
"""Fields whose entries have a key, and by what they are sorted, before that."""
_NAMED = ("nodes", "shapes", "priorities", "metrics")
_MEMORY = "memory"
_PLAIN = tuple(field.name for field in fields(QueueSnapshot) if field.name not in {*_KEYED, *_NAMED, _MEMORY, "queue"})


def blank(queue: str) -> QueueSnapshot:
    """A snapshot that knows nothing: the difference from it is the whole."""
    return QueueSnapshot(queue=queue, at=0.0, limit_gpus=0, allocated_gpus=0)


def delta(before: QueueSnapshot, after: QueueSnapshot, *, remembered: Memory) -> dict[str, Any]:
    """What makes `after` of `before`, two snapshots of a queue; of the memory, what is not as `remembered`."""
    found: dict[str, Any] = {}
    for name in _PLAIN:
        old, new = getattr(before, name), getattr(after, name)
        if old is not new and old != new:
            found[name] = packer(_HINTS[name])(new)
    for name in _KEYED:
        _put(found, name, _keyed(getattr(before, name), getattr(after, name)))
    for name in _NAMED:
        _put(found, name, _named(getattr(before, name), getattr(after, name), get_args(_HINTS[name])[1]))
    if remembered is not after.memory and remembered != after.memory:
        memory = {key: each for key, each in changed_fields(remembered, after.memory).items() if key != "jobs"}
        _put(memory, "jobs", _grouped(remembered.jobs, after.memory.jobs))
        found[_MEMORY] = memory
    return found


def applied(before: QueueSnapshot, changes: Mapping[str, Any], *, remembered: Memory) -> QueueSnapshot:
    """The snapshot that a delta leads to. Its Jobs are sorted by key, its gangs by age."""
    found: dict[str, Any] = {name: unpacker(_HINTS[name])(changes[name]) for name in _PLAIN if name in changes}
    for name, order in _KEYED.items():
        if name in changes:
            kind = get_args(_HINTS[name])[0]
            found[name] = _entries(kind, getattr(before, name), changes[name], order)
    for name in _NAMED:
        if name in changes:
            kind = get_args(_HINTS[name])[1]
            found[name] = _items(kind, getattr(before, name), changes[name])
    memory = changes.get(_MEMORY, {})
    jobs = _ungrouped(remembered.jobs, memory.get("jobs", ()))
    rest = {key: value for key, value in memory.items() if key != "jobs"}
    found[_MEMORY] = replace(with_fields(remembered, rest), jobs=jobs) if memory else remembered
    return replace(before, **found)


def _grouped(before: Mapping[str, JobMemory], after: Mapping[str, JobMemory]) -> list[list[Any]]:
    """[memory, Jobs that it is of] for what differs, None for what is gone; the same is remembered of many Jobs."""
    groups: dict[tuple[Any, ...], tuple[JobMemory, list[str]]] = {}
    for key, memory in after.items():
        was = before.get(key)
        if was is not memory and was != memory:
            same = (memory.recommendations, memory.measured_since, *sorted(memory.peaks.items()))
            groups.setdefault(same, (memory, []))[1].append(key)
    write = packer(JobMemory)
    found: list[list[Any]] = [[write(memory), keys] for memory, keys in groups.values()]
    gone = [key for key in before if key not in after]
    return [*found, [None, gone]] if gone else found


def _ungrouped(before: Mapping[str, JobMemory], groups: Sequence[Sequence[Any]]) -> Mapping[str, JobMemory]:
    found, read = dict(before), unpacker(JobMemory)
    for value, keys in groups:
        for key in keys:
            if value is None:
                found.pop(key, None)
            else:
                found[key] = read(value)
    return found


def _put(found: dict[str, Any], name: str, changes: Mapping[str, Any] | Sequence[Any]) -> None:
    if changes:
        found[name] = changes


def _keyed(before: Sequence[Any], after: Sequence[Any]) -> dict[str, Any]:
    """What differs by key: of those that were there the fields that do, of new ones all, None for what is gone."""
    if before is after:
        return {}
    old = {each.key: each for each in before}
    found: dict[str, Any] = {}
    for each in after:
        was = old.pop(each.key, None)
        if was is None:
            found[each.key] = packer(type(each))(each)
        elif was is not each and (changes := changed_fields(was, each)):
            found[each.key] = changes
    return found | dict.fromkeys(old)


def _entries(kind: Any, before: Sequence[Any], changes: Mapping[str, Any], order: str) -> tuple[Any, ...]:
    found = {each.key: each for each in before}
    for key, value in changes.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = with_fields(found[key], value) if key in found else unpacker(kind)(value)
    return tuple(sorted(found.values(), key=lambda each: (getattr(each, order), each.key)))


def _named(before: Mapping[str, Any], after: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """What differs by name, whole; None for what is gone."""
    if before is after:
        return {}
    write = packer(kind)
    found = {
        name: write(value)
        for name, value in after.items()
        if name not in before or (before[name] is not value and before[name] != value)
    }
    return found | {name: None for name in before if name not in after}


def _items(kind: Any, before: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    if not changes:
        return before
    read = unpacker(kind)
    kept = {name: value for name, value in before.items() if changes.get(name, value) is not None}
    return kept | {name: read(value) for name, value in changes.items() if value is not None}
