# SPDX-License-Identifier: Apache-2.0
"""The batch of a number of workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.scaling import Sizing
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.batch import Batch

bounds = st.none() | st.integers(1, 1000)


@given(st.integers(1, 1000), st.lists(st.integers(1, 64), min_size=1))
def test_a_constant_batch_is_one_for_every_size(base: int, sizes: list[int]) -> None:
    """However the number of workers moves."""
    sizing = Sizing.of(Batch(size=base))
    assert {sizing.batch(workers) for workers in sizes} == {base}


@given(st.integers(1, 100), bounds, bounds, st.sets(st.integers(1, 1000)), st.integers(1, 64))
def test_a_batch_that_follows_stays_within_its_bounds(
    each: int, least: int | None, most: int | None, sizes: set[int], workers: int
) -> None:
    """Each worker adds its samples, up to a bound, to one of the allowed sizes; more workers are never less."""
    if least is not None and most is not None:
        least, most = sorted((least, most))
    allowed = tuple(sorted(size for size in sizes if (least or 1) <= size <= (most or 1000)))
    batch = Batch(size=50, rule="linear", per_worker=each, min=least, max=most, sizes=allowed)
    sizing = Sizing.of(batch)
    found = sizing.batch(workers)
    assert (least or 1) <= found <= (most or 64 * 100)
    assert found in allowed if allowed else found in {each * workers, least, most}
    assert found <= sizing.batch(workers + 1)


def test_two_of_three_sizes_are_enough() -> None:
    """The base batch is what a worker adds times the workers it was chosen for."""
    same = [
        Batch(rule="sqrt", size=256, per_worker=64),
        Batch(rule="sqrt", size=256, base_workers=4),
        Batch(rule="sqrt", per_worker=64, base_workers=4),
        Batch(rule="sqrt", size=256, per_worker=64, base_workers=4),
    ]
    assert {(Sizing.of(batch).base, Sizing.of(batch).batch(6)) for batch in same} == {(256, 384)}


@given(st.integers(0, 1000), st.none() | st.integers(1, 100))
def test_parts_fit_the_device(share: int, at_once: int | None) -> None:
    """No part is larger than what fits, and there are no more than it takes."""
    parts = Sizing(base=1, at_once=at_once).parts(share)
    assert parts >= 1
    if at_once is not None:
        assert -(-share // parts) <= at_once
        assert parts == 1 or -(-share // (parts - 1)) > at_once


def test_the_spec_comes_before_the_code() -> None:
    """Sizes alone leave the rule to the code; a rule takes from the code only the base batch."""
    code = Batch(size=256, rule="sqrt", per_worker=64, max_per_worker=16)
    assert Batch().over(code) == code
    assert Batch(size=512, max_per_worker=8).over(Batch(size=256)) == Batch(size=512, max_per_worker=8)
    assert Batch(rule="linear", per_worker=32).over(code) == Batch(
        rule="linear", per_worker=32, size=256, max_per_worker=16
    )
    spec = Batch(rule="linear", per_worker=32, base_workers=2)
    assert spec.over(Batch(size=256)) == spec
    assert Batch(rule="linear", base_workers=2).over(code).share == 128


@pytest.mark.parametrize(
    ("batch", "paths"),
    [
        (Batch(), ["batch"]),
        (Batch(size=4, per_worker=2, min=1, max=9, sizes=(4,)), ["perWorker", "min", "max", "sizes"]),
        (Batch(size=4, rule="linear"), ["perWorker"]),
        (Batch(rule="linear", per_worker=4), ["batch"]),
        (Batch(size=10, rule="sqrt", base_workers=4), ["baseWorkers"]),
        (Batch(size=10, rule="sqrt", base_workers=4, per_worker=2), ["global"]),
        (Batch(size=8, rule="sqrt", per_worker=4, min=9, max=8, sizes=(16, 4)), ["min", "sizes", "sizes"]),
        (Batch(size=8, rule="legw", per_worker=4, ramp=5), ["ramp", "warmup"]),
        (Batch(size=8, rule="adascale", per_worker=0, warmup=3), ["perWorker", "warmup"]),
        (Batch(size=8, rule="lienar"), ["rule"]),  # type: ignore[arg-type]
    ],
)
def test_everything_that_does_not_fit_is_named(batch: Batch, paths: list[str]) -> None:
    """All problems of a batch at once, each with its key."""
    with pytest.raises(SpecError) as caught:
        Sizing.of(batch)
    assert [problem.path for problem in caught.value.problems] == paths
