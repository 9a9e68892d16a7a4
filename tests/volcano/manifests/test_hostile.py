# SPDX-License-Identifier: Apache-2.0
"""Texts made to break programs, in every place of a spec that takes text, change no manifest's structure.

Whether a spec is valid does not matter here: it is rendered without having been checked.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings

from kfp_volcano.schemas.wording import dotted
from strategies.queue_trees import QUEUE_SCHEMA, forced_queues, tree_examples
from strategies.structure import Place, harm, places
from strategies.texts import HOSTILE, LONG
from strategies.training_jobs import SCHEMA, WHOLE, examples, forced

SPEC = max(examples(), key=lambda example: len(str(example)))
FULL = settings.default.max_examples >= 1000


def some(place: Place, share: int) -> list[str]:
    """The texts for a place: all in the profile `full`, otherwise so many, others for each place, and a long one."""
    if FULL:
        return [*HOSTILE, *LONG]
    pick = random.Random(dotted(place.path))
    return [*pick.sample(HOSTILE, share), *pick.sample(LONG, pick.random() < 1 / 20)]


def by_key(found: list[Place]) -> list[pytest.param]:
    """Places as parameters, those of one key of the spec together."""
    groups: dict[str, list[Place]] = {}
    for place in found:
        groups.setdefault(dotted(place.path[:2]), []).append(place)
    return [pytest.param(group, id=key) for key, group in groups.items()]


@pytest.mark.parametrize("group", by_key(places(SCHEMA, SPEC)))
def test_texts_of_a_training_job(group: list[Place]) -> None:
    """A hostile text, or key, leaves the rendered objects as a harmless one does, and they survive as YAML."""
    for place in group:
        assert harm(place, some(place, 4), forced) == ""


def test_texts_in_kubernetes_words() -> None:
    """So does one in any field of a pod template, within a patch."""
    for place in places(WHOLE, SPEC, ("spec", "podPatch")):
        assert harm(place, some(place, 1), forced) == ""


@pytest.mark.parametrize("number", range(len(tree_examples())))
def test_texts_of_a_queue_tree(number: int) -> None:
    """So does one in a QueueTree."""
    for place in places(QUEUE_SCHEMA, tree_examples()[number]):
        assert harm(place, some(place, 6), forced_queues) == ""
