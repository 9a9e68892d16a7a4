# SPDX-License-Identifier: Apache-2.0
"""Snapshots to JSON and back: whole, and by what has changed."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.elastic.autoscaler.decisions.deltas import applied, blank, delta
from kfp_volcano.elastic.policies.memory import Memory
from kfp_volcano.elastic.policies.policy import Decision
from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot
from kfp_volcano.schemas.packing import changed_fields, pack, unpack, with_fields
from kfp_volcano.schemas.records import ResizeOutcome

KEYS = st.sampled_from(["ml/a", "ml/b", "x/a", "x/c"])
SCALARS = {
    str: st.sampled_from(["", "a", "gpu.class", "n1", "é"]),
    bool: st.booleans(),
    int: st.integers(-3, 2**53),
    float: st.floats(allow_nan=False) | st.integers(0, 3),
    type(None): st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, from its hints."""
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(map(values, arguments))
    if is_dataclass(origin):
        hints = typing.get_type_hints(origin)
        parts = {field.name: values(hints[field.name]) for field in fields(typing.cast("Any", origin))}
        return st.builds(origin, **{**parts, **({"key": KEYS} if "key" in parts else {})})
    if origin is tuple:
        return sequences(arguments)
    if issubclass(origin, Mapping):
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if issubclass(origin, Enum):
        return st.sampled_from(origin)
    return SCALARS[origin]


def sequences(arguments: Any) -> st.SearchStrategy[Any]:
    """Any tuple: of entries with a key each has its own."""
    if arguments[-1] is not Ellipsis:
        return st.tuples(*map(values, arguments))
    keyed = hasattr(arguments[0], "key")
    entries = st.lists(values(arguments[0]), max_size=3, unique_by=(lambda each: each.key) if keyed else None)
    return entries.map(tuple)


def through_json(value: Any) -> Any:
    """What is read of what is written, by any reader of JSON."""
    return json.loads(json.dumps(value, allow_nan=False))


def sorted_snapshot(snapshot: QueueSnapshot) -> QueueSnapshot:
    """With its parts in the order in which autoscalers list them."""
    by_age = {
        name: tuple(sorted(getattr(snapshot, name), key=lambda each: (each.since, each.key)))
        for name in ("pending", "claims")
    }
    by_key = {name: tuple(sorted(getattr(snapshot, name), key=lambda each: each.key)) for name in ("jobs", "ranked")}
    return replace(snapshot, queue="research", **by_age, **by_key)


SNAPSHOTS = values(QueueSnapshot).map(sorted_snapshot)


@given(value=values(QueueSnapshot) | values(Decision) | values(ResizeOutcome))
@settings(max_examples=60)
def test_a_value_survives_its_json(value: Any) -> None:
    """Whatever it is made of."""
    assert unpack(type(value), through_json(pack(value))) == value


@given(one=values(Decision), two=values(Decision))
def test_the_fields_that_differ_make_one_value_of_another(one: Decision, two: Decision) -> None:
    """And nothing differs in equal ones."""
    changes = through_json(changed_fields(one, two))
    assert with_fields(one, changes) == two
    assert (changes == {}) == (one == two)


@given(before=SNAPSHOTS, after=SNAPSHOTS, remembered=values(Memory))
@settings(max_examples=100)
def test_a_delta_makes_the_next_snapshot_of_the_one_before(
    before: QueueSnapshot, after: QueueSnapshot, remembered: Memory
) -> None:
    """From any to any other, from none, and to itself by nothing."""
    for base in (before, blank("research")):
        changes = through_json(delta(base, after, remembered=remembered))
        assert applied(base, changes, remembered=remembered) == after
    assert delta(after, after, remembered=after.memory) == {}


def test_a_delta_tells_what_has_changed_and_nothing_else() -> None:
    """Of one Job of many, one field."""
    size = {"workers": 3, "running": 3, "min_workers": 1, "max_workers": 8, "sizes": (1, 3, 8), "gpus_per_worker": 1}
    first, second = (ElasticJob(key=key, nodes=("n",) * 3, **size) for key in ("ml/a", "ml/b"))
    before = replace(blank("research"), at=1.0, limit_gpus=8, jobs=(first, second))
    after = replace(before, at=before.at + 1, jobs=(first, replace(second, running=2)))
    assert delta(before, after, remembered=before.memory) == {
        "at": after.at,
        "jobs": {second.key: {"running": 2}},
    }
