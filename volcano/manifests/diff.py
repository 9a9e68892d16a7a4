# SPDX-License-Identifier: Apache-2.0
"""What differs between two renderings: each difference with its path, the way people point at a field.

Entries of lists are matched by the key that Kubernetes knows them by (a task, a container or a variable by its name),
so that one that was added does not make all that follow differ.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Difference", "differences", "lines"]

_KEYS = ("name", "mountPath", "key", "event", "containerPort", "ip")
_MADE = {names.OWNER, names.SPEC}
"""Annotations made of the spec: they differ wherever anything does."""


class Difference(NamedTuple):
    """A value that is in one manifest and not, or not the same, in the other."""

    path: str
    before: Any
    """None: not there."""
    after: Any

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.path}: {_shown(self.after)}"
        if self.after is None:
            return f"- {self.path}: {_shown(self.before)}"
        return f"~ {self.path}: {_shown(self.before)} -> {_shown(self.after)}"


def lines(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[str]:
    """The differences between the objects of two renderings, a line each, objects matched by kind and name."""
    first, second = _by_name(before), _by_name(after)
    found = []
    for name in [*first, *(name for name in second if name not in first)]:
        if name not in second:
            found.append(f"- {name}")
        elif name not in first:
            found.append(f"+ {name}")
        else:
            found += [str(each) for each in differences(first[name], second[name], path=name)]
    return found


def _by_name(objects: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Objects by kind, and by their name within a kind of which there are several."""
    kinds = [each["kind"] for each in objects]
    return {
        each["kind"] if kinds.count(each["kind"]) == 1 else f"{each['kind']}/{each['metadata']['name']}": each
        for each in objects
    }


def differences(before: Any, after: Any, *, path: str = "") -> Iterator[Difference]:
    """Where two values differ, in the order of the first, then what only the second has."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            if key not in _MADE:
                place = f"{path}.{key}" if key.replace("-", "").isalnum() else f"{path}[{key}]"
                yield from differences(before.get(key), after.get(key), path=place)
    elif isinstance(before, list) and isinstance(after, list) and before != after:
        yield from _list_differences(before, after, path)
    elif before != after:
        yield Difference(path, before, after)


def _list_differences(before: list[Any], after: list[Any], path: str) -> Iterator[Difference]:
    key = next((key for key in _KEYS if _identified(before, key) and _identified(after, key)), None)
    if key is None:
        yield Difference(path, before, after)
        return
    first, second = ({entry[key]: entry for entry in entries} for entries in (before, after))
    for name in [*first, *(name for name in second if name not in first)]:
        yield from differences(first.get(name), second.get(name), path=f"{path}[{name}]")


def _identified(entries: list[Any], key: str) -> bool:
    """Whether a key tells the entries of a list apart."""
    values = [entry.get(key) for entry in entries if isinstance(entry, dict)]
    return len(values) == len(entries) and None not in values and len({*map(str, values)}) == len(values)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
