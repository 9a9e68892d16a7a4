# SPDX-License-Identifier: Apache-2.0
"""A spec with a text made to break programs is refused, or a real API server takes all that it brings about."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import settings

from apiserver.judge import Judge
from apiserver.server import ApiServer
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.queue_validation import queue_tree
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.schemas.wording import dotted
from kfp_volcano.volcano.manifests import queues
from strategies.queue_trees import QUEUE_SCHEMA, tree_examples
from strategies.structure import Place, places
from strategies.texts import HOSTILE, LONG
from strategies.training_jobs import SCHEMA, examples, rendered

pytestmark = pytest.mark.cluster

SPEC = max(examples(), key=lambda example: len(str(example)))
FULL = settings.default.max_examples >= 1000


def some(place: Place) -> list[str]:
    """The texts for a place: all in the profile `full`, otherwise a few, others for each place, and a long one."""
    if FULL:
        return [*HOSTILE, *LONG]
    pick = random.Random(dotted(place.path))
    return [*pick.sample(HOSTILE, 4), *pick.sample(LONG, pick.random() < 1 / 10)]


@pytest.fixture(scope="module")
def judge(apiserver: ApiServer) -> Iterator[Judge]:
    judge = Judge(apiserver.admin, "default")
    yield judge
    judge.close()


@pytest.mark.parametrize("place", [pytest.param(each, id=dotted(each.path)) for each in places(SCHEMA, SPEC)])
def test_hostile_texts_of_a_training_job(judge: Judge, place: Place) -> None:
    """Wherever a text or a key may stand."""
    for text in some(place):
        try:
            job = training_job(place.holding(text))
        except SpecError:
            continue
        assert judge.refusals(rendered(job)) == [], repr(text[:80])


@pytest.mark.parametrize("number", range(len(tree_examples())))
def test_hostile_texts_of_a_queue_tree(judge: Judge, number: int) -> None:
    """The same of queues."""
    for place in places(QUEUE_SCHEMA, tree_examples()[number]):
        for text in some(place):
            try:
                tree = queue_tree(place.holding(text))
            except SpecError:
                continue
            assert judge.queue_refusals(queues.manifests(tree)) == [], (dotted(place.path), text[:80])
