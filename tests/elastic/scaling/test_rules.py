# SPDX-License-Identifier: Apache-2.0
"""The laws of the rules for the learning rate."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.scaling import Factors, Situation, bias_ratio, misfits, named, scaled_beta
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.batch import FOLLOWING, Batch, BatchRule

LONG = 10**9
batches = st.integers(1, 10**5)
noise_scales = st.none() | st.floats(0, 1e12) | st.just(math.inf)
following = st.sampled_from(FOLLOWING)


def factors(rule: str, batch: int, base: int, *, noise: float | None = None, samples: int = LONG) -> Factors:
    found = named(Batch(rule=rule, warmup=1000))(  # type: ignore[arg-type]
        Situation(
            workers=1,
            batch=batch,
            base_batch=base,
            samples=samples,
            progress=float(samples),
            size=1000,
            epochs=3,
            noise_scale=noise,
        )
    )
    assert isinstance(found, Factors)
    return found


@given(st.sampled_from([rule for rule in get_args(BatchRule) if rule != "custom"]), batches, noise_scales)
def test_at_the_base_batch_all_rules_leave_all_as_it_is(rule: str, base: int, noise: float | None) -> None:
    """At kappa = 1 they agree, to the bit, whatever the noise."""
    found = factors(rule, base, base, noise=noise)
    assert (found.lr, found.forgetting, found.eps, found.gain or 1.0) == (1.0, 1.0, 1.0, 1.0)


@given(following, batches, st.lists(batches, min_size=1), noise_scales)
def test_there_and_back_is_where_it_began(rule: str, base: int, way: list[int], noise: float | None) -> None:
    """What a batch learns at does not depend on those before: 4 -> 8 -> 4 gives the same to the bit."""
    first = factors(rule, base, base, noise=noise)
    for batch in way:
        factors(rule, batch, base, noise=noise)
    assert factors(rule, base, base, noise=noise) == first


@given(following, batches, batches, batches, noise_scales)
def test_larger_batches_never_learn_at_less(rule: str, one: int, other: int, base: int, noise: float | None) -> None:
    """Monotone, and between 1 and kappa, on whichever side of the base batch."""
    one, other = sorted((one, other))
    lower, upper = factors(rule, one, base, noise=noise).lr, factors(rule, other, base, noise=noise).lr
    assert lower <= upper * (1 + 1e-12)
    kappa = other / base
    assert min(1.0, kappa) * (1 - 1e-12) <= upper <= max(1.0, kappa) * (1 + 1e-12)


@given(st.sampled_from(["linear", "sqrt", "adam-sde"]), batches, batches, batches)
def test_one_change_after_another_is_the_change_as_a_whole(rule: str, base: int, middle: int, batch: int) -> None:
    """Of rules that are powers of kappa; the gain of AdaScale is none."""
    two = [factors(rule, middle, base), factors(rule, batch, middle)]
    whole = factors(rule, batch, base)
    for name in ("lr", "forgetting", "eps"):
        assert math.prod(getattr(each, name) for each in two) == pytest.approx(getattr(whole, name))


@given(st.integers(1, 1000), st.integers(2, 64))
def test_the_gain_follows_the_noise(base: int, kappa: int) -> None:
    """No noise, no gain; all noise, a sample is worth a sample; in between r = (s + m) / (s / kappa + m)."""
    assert factors("adascale", base * kappa, base, noise=None).lr == 1.0
    assert factors("adascale", base * kappa, base, noise=0.0).lr == 1.0
    assert factors("adascale", base * kappa, base, noise=math.inf).lr == kappa
    assert factors("adascale", base * kappa, base, noise=1e15).lr == pytest.approx(kappa)
    spread, square = 3.0, 0.5
    gain = (spread + square) / (spread / kappa + square)
    found = factors("adascale", base * kappa, base, noise=base * spread / square)
    assert found.lr == pytest.approx(gain)
    assert found.gain == found.lr


@given(batches, st.integers(1, 64))
def test_the_warm_up_of_legw_is_as_many_times_longer(base: int, kappa: int) -> None:
    """It ends after kappa times its samples, at the square root, and never starts at 0."""
    batch = base * kappa
    peak = math.sqrt(batch / base)
    assert 0 < factors("legw", batch, base, samples=0).lr <= peak
    half = factors("legw", batch, base, samples=500 * kappa - batch).lr
    assert half == pytest.approx(peak / 2)
    assert factors("legw", batch, base, samples=1000 * kappa).lr == peak


def test_adam_forgets_by_sample() -> None:
    """After kappa small steps or one large step as much of the past is left, to first order in 1 - beta."""
    for beta in (0.9, 0.99, 0.999):
        assert scaled_beta(beta, 1.0) == beta
        assert scaled_beta(beta, 4.0) == pytest.approx(beta**4, abs=8 * (1 - beta) ** 2)
    found = factors("adam-sde", 16, 4)
    assert (found.lr, found.forgetting, found.eps) == (2.0, 4.0, 0.5)


def test_a_batch_that_adam_cannot_follow_is_named_with_its_bound() -> None:
    """kappa (1 - beta) may not be more than 1."""
    assert scaled_beta(0.75, 4.0) == 0.0
    with pytest.raises(SpecError, match=r"at most 10 times the base batch .*rule: sqrt"):
        scaled_beta(0.9, 16.0)
    adam = [{"betas": (0.9, 0.999)}]
    assert misfits(Batch(rule="adam-sde"), adam, 8.0) == []
    assert ["beta 0.9" in problem.message for problem in misfits(Batch(rule="adam-sde"), adam, 16.0)] == [True]
    assert len(misfits(Batch(rule="adam-sde"), adam, 2000.0)) == 2
    assert misfits(Batch(rule="adam-sde"), [{"alpha": 0.99}], 8.0) == []


def test_rules_are_for_the_optimizers_they_were_made_for() -> None:
    """SGD has no second moments, and the gain of AdaScale knows no preconditioner."""
    assert "Adam" in misfits(Batch(rule="adam-sde"), [{"lr": 0.1}], 1.0)[0].message
    assert "SGD" in misfits(Batch(rule="adascale"), [{"betas": (0.9, 0.999)}], 1.0)[0].message
    assert misfits(Batch(rule="adascale"), [{"lr": 0.1}], 100.0) == []


@given(st.lists(st.floats(0.5, 0.999), min_size=2, max_size=6), st.integers(1, 20))
def test_a_corrected_average_stays_one(betas: list[float], steps: int) -> None:
    """Of constant gradients Adam's corrected average is that constant, however its decay changes on the way."""
    average, done, before = 0.0, 0, betas[0]
    for beta in betas:
        if done:
            average *= bias_ratio(before, beta, done)
        for _ in range(steps):
            average = beta * average + (1 - beta) * 7.0
            done += 1
        assert average / (1 - beta**done) == pytest.approx(7.0)
        before = beta
