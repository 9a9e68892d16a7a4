# SPDX-License-Identifier: Apache-2.0
"""Changes to a document: what a careless or a hostile hand does to a good one, anywhere its schema reaches."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from strategies.json_schema import Field, Path, Place, Schema, broken, free_keys, places, values

__all__ = ["ABSENT", "Edit", "Fields", "apply", "edits", "lots"]

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


class Fields:
    """The fields of a schema, some of them oftener than others, and where in documents they are."""

    def __init__(self, schema: Schema, chosen: Sequence[Sequence[Field]]) -> None:
        """Each group of `chosen` fields is chosen from as often as another."""
        self.schema = schema
        self.chosen = [list(group) for group in chosen]
        self._known: list[tuple[Any, dict[Field, list[Place]]]] = []

    def places(self, document: Any) -> dict[Field, list[Place]]:
        """Where in a document each field is or could be; kept for documents that are asked about again."""
        for known, found in self._known:
            if known is document:
                return found
        found: dict[Field, list[Place]] = {}
        for place in places(self.schema, document):
            found.setdefault(place.field, []).append(place)
        self._known = [*self._known[-_KEPT:], (document, found)]
        return found


@st.composite
def edits(draw: st.DrawFn, fields: Fields, document: Any) -> list[Edit]:
    """Up to three changes to a document, each of another field, and as good or as bad as the schema allows."""
    found, pick = fields.places(document), draw(lots())
    changes: list[Edit] = []
    for _ in range(pick.choice(_COUNTS)):
        field = pick.choice(pick.choice(fields.chosen))
        if field in found:
            changes.append(draw(_edit(pick, pick.choice(found[field]), fields.schema)))
    return changes


def lots() -> st.SearchStrategy[random.Random]:
    """What draws lots evenly. Hypothesis itself prefers what comes first, and would hardly come to most fields."""
    return st.integers(0, 2**32 - 1).map(random.Random)


@st.composite
def _edit(draw: st.DrawFn, pick: random.Random, place: Place, schema: Schema) -> Edit:
    kind = pick.choice(["good", "good", "good", "good", "broken", "broken", "absent", "key"])
    path, rule = place.path, place.rule
    if kind == "key" and isinstance(rule.get("additionalProperties"), Mapping):
        key = draw(broken(free_keys(rule, schema), schema).filter(lambda made: isinstance(made, str)))
        return Edit((*path, key), draw(values(rule["additionalProperties"], schema)))
    if kind == "key" and "properties" in rule:
        return Edit((*path, pick.choice(_UNKNOWN_KEYS)), pick.choice([1, "x", {}, None]))
    if kind == "absent":
        return Edit(path, ABSENT)
    return Edit(path, draw(values(rule, schema) if kind == "good" else broken(rule, schema)))


_KEPT = 40
_COUNTS = (1, 1, 2, 3)
"""How many changes a document gets: alone each is told apart, together they may hide each other."""
_UNKNOWN_KEYS = ("unknown", "Name", "min_available", "", "a b", "replicas ", "spec", "é", "x" * 300)
