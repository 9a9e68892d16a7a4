# SPDX-License-Identifier: Apache-2.0
"""The generator of documents reaches every field of the published schemas, with good values and broken ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator

from strategies.edits import ABSENT, Edit, Fields
from strategies.json_schema import ANY, Field, Schema, follow
from strategies.queue_trees import QUEUE_SCHEMA, TREE_FIELDS, queue_trees
from strategies.training_jobs import FIELDS, SCHEMA, WHOLE, training_jobs

MANY = 400
LEAST = 0.3
"""The part of the fields that so many documents have to come to; which are left out differs from seed to seed."""


def fields(rule: Schema, root: Schema, field: Field = (), above: tuple[Any, ...] = ()) -> Iterator[Field]:
    """Every field of a schema, by walking the schema alone; what holds itself is looked into once."""
    rule = follow(rule, root)
    if field:
        yield field
    properties = rule.get("properties")
    if properties is not None and any(properties is each for each in above):
        return
    further = above if properties is None else (*above, properties)
    ways = [*(properties or {}).items(), *((ANY, each) for each in rule.get("prefixItems", ()))]
    ways += [(ANY, rule[key]) for key in ("additionalProperties", "items") if isinstance(rule.get(key), dict)]
    for part, child in ways:
        yield from fields(child, root, (*field, part), further)


@pytest.mark.parametrize(
    ("schema", "known"),
    [(SCHEMA, FIELDS), (WHOLE, FIELDS), (QUEUE_SCHEMA, TREE_FIELDS)],
    ids=["spec", "pods", "queues"],
)
def test_no_field_is_out_of_reach(schema: Schema, known: Fields) -> None:
    """What the schema has lots are drawn among; a field that is added to it is changed from then on."""
    drawn = {field for group in known.chosen for field in group}
    assert {*fields(schema, schema)} <= drawn


@pytest.mark.parametrize(
    ("documents", "known", "schema"),
    [(training_jobs(), FIELDS, SCHEMA), (queue_trees(), TREE_FIELDS, QUEUE_SCHEMA)],
    ids=["specs", "queues"],
)
def test_the_fields_are_changed_for_better_and_for_worse(documents: Any, known: Fields, schema: Schema) -> None:
    """Among many documents nearly every field gets a value that its schema allows, one that it forbids, or none."""
    good: Counter[Field] = Counter()
    bad: Counter[Field] = Counter()

    @given(documents)
    @settings(
        max_examples=MANY,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def draw(case: tuple[Any, list[Edit]]) -> None:
        document, changes = case
        where = {place.path: place for places in known.places(document).values() for place in places}
        for place, change in ((where[change.path], change) for change in changes if change.path in where):
            (good if allowed(change, place.rule, schema) else bad)[place.field] += 1

    draw()
    own = {*fields(schema, schema)}
    assert len(own & (good.keys() | bad.keys())) >= LEAST * len(own)
    assert min(good.total(), bad.total()) >= MANY / 5


def allowed(change: Edit, rule: Schema, schema: Schema) -> bool:
    """Whether a change gives a field what its schema allows there."""
    if change.value is ABSENT:
        return False
    own = {key: part for key, part in rule.items() if key != "x-key"}
    return bool(Draft202012Validator({**own, "$defs": schema["$defs"]}).is_valid(change.value))
