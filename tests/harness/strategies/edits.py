"""Changes to a document: what a careless or a hostile hand does to a good one, anywhere its schema reaches."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from strategies.json_schema import Path, Schema, broken, place, values

__all__ = ["ABSENT", "Edit", "apply", "edits"]

ABSENT = type("Absent", (), {"__repr__": lambda _: "ABSENT", "__deepcopy__": lambda self, _: self})()
"""The value of an edit that takes something out."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: what now stands at a path."""

    path: Path
    value: Any


def apply(document: Any, changes: Sequence[Edit]) -> Any:
    """A copy of a document with the changes made in their order; one that has nowhere to go is left out."""
    changed = copy.deepcopy(document)
    for change in changes:
        _set(changed, change.path, copy.deepcopy(change.value))
    return changed


def _set(document: Any, path: Path, value: Any) -> None:
    for part in path[:-1]:
        if isinstance(part, str) and isinstance(document, dict):
            document = document.setdefault(part, {})
        elif isinstance(part, int) and isinstance(document, list) and part < len(document):
            document = document[part]
        else:
            return
    last = path[-1]
    if isinstance(last, str) and isinstance(document, dict):
        if value is ABSENT:
            document.pop(last, None)
        else:
            document[last] = value
    elif isinstance(last, int) and isinstance(document, list):
        document[last : last + 1] = [] if value is ABSENT else [value]


@st.composite
def edits(draw: st.DrawFn, schema: Schema, document: Any, *, below: Path = ()) -> list[Edit]:
    """Up to three changes to a document, or to what is `below` a path, each as good or as bad as its schema allows."""
    changes: list[Edit] = []
    for _ in range(draw(st.integers(0, _MOST))):
        path, rule = draw(place(schema, apply(document, changes), below))
        kind = draw(st.sampled_from(["good", "good", "broken", "broken", "absent", "unknown"]))
        if kind == "unknown" and "properties" in rule:
            changes.append(Edit((*path, draw(_unknown_keys)), draw(st.sampled_from([1, "x", {}, None]))))
        elif kind == "absent":
            changes.append(Edit(path, ABSENT))
        else:
            changes.append(Edit(path, draw(values(rule, schema) if kind == "good" else broken(rule, schema))))
    return changes


_MOST = 3
_unknown_keys = st.sampled_from(["unknown", "Name", "min_available", "", "a b", "replicas ", "spec", "é", "x" * 300])
