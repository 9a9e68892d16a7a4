# SPDX-License-Identifier: Apache-2.0
"""Classes in stated proportions, step by step."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.sharding import Cursor, Mixture, Plan
from kfp_volcano.errors import SpecError


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[Mixture, list[int], dict[int, float]]:
    """Skewed classes, and the proportions they are to have."""
    labels = draw(st.lists(st.integers(0, 4), min_size=1, max_size=120))
    weights = {label: draw(st.floats(0.05, 20.0)) for label in sorted(set(labels))}
    return Mixture(labels, weights, size=draw(st.integers(1, 400))), labels, weights


@given(mixtures(), st.integers(0, 99), st.integers(0, 50), st.data())
def test_every_batch_has_the_proportions(
    mixed: tuple[Mixture, list[int], dict[int, float]], seed: int, epoch: int, data: st.DataObject
) -> None:
    """Of any positions in a row, each class has what it is to have, to within 2 samples."""
    mixture, labels, weights = mixed
    start = data.draw(st.integers(0, mixture.size))
    end = data.draw(st.integers(start, mixture.size))
    drawn = Counter(labels[sample] for sample in mixture.ids(seed, epoch, start, end).tolist())
    for label, weight in weights.items():
        assert abs(drawn[label] - (end - start) * weight / sum(weights.values())) < 2.1


@given(mixtures(), st.integers(0, 99), st.integers(1, 4))
def test_a_sample_waits_for_all_others_of_its_class(
    mixed: tuple[Mixture, list[int], dict[int, float]], seed: int, epochs: int
) -> None:
    """Of any class no sample is fed for the n-th time before each was n-1 times, and that is what is due."""
    mixture, labels, _ = mixed
    fed = np.zeros(len(labels), dtype=int)
    for epoch in range(epochs):
        for sample in mixture.ids(seed, epoch, 0, mixture.size).tolist():
            of_class = fed[[other for other, label in enumerate(labels) if label == labels[sample]]]
            assert fed[sample] == of_class.min()
            fed[sample] += 1
    assert mixture.due(seed, epochs).tolist() == fed.tolist()


def test_proportions_hold_over_a_long_training() -> None:
    """A class of one in a thousand is fed as often as the one of all others where the weights say so."""
    labels = [0] * 999 + [1]
    plan = Plan(size=1000, batch=50, epochs=2, order=Mixture(labels, {0: 1, 1: 1}))
    batches = [plan.ids(Cursor(epoch, start), 50) for epoch in range(2) for start in range(0, 1000, 50)]
    assert {int((batch == 999).sum()) for batch in batches} == {25}
    assert len(set(np.concatenate(batches).tolist())) == 999 + 1


def test_a_mixture_never_changes() -> None:
    """A released order is a promise to every checkpoint."""
    mixture = Mixture("aaaaab", {"a": 2, "b": 1})
    assert mixture.ids(0, 0, 0, 6).tolist() == PINNED
    assert mixture.ids(1, 0, 0, 6).tolist() != PINNED


PINNED = [3, 2, 5, 1, 0, 5]


def test_all_that_is_wrong_is_named_at_once() -> None:
    """Classes without weights, weights without samples, and weights that are none."""
    with pytest.raises(SpecError) as caught:
        Mixture(["cat", "dog", "dog"], {"cat": 0, "bird": 1}, size=0)
    assert [problem.path for problem in caught.value.problems] == [
        "weights['dog']",
        "weights['bird']",
        "weights['cat']",
        "size",
    ]
