# SPDX-License-Identifier: Apache-2.0
"""Figures of outcomes: hand-computed tables, numpy as the oracle, and what must not matter."""

from __future__ import annotations

import itertools
import random
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.simulator.figures import METRICS, Figures, figures, jain, rhos
from kfp_volcano.elastic.simulator.outcome import JobOutcome, Outcome, Span


def job(name: str, begin: float, start: float, end: float | None, **given: Any) -> JobOutcome:
    """A job that held its GPUs from its start to its end."""
    gpus = given.pop("gpus", 2)
    span = Span(begin=start, end=end if end is not None else start, gpus=gpus, lost_s=given.pop("lost_s", 0.0))
    whole: dict[str, Any] = {
        "team": "vision", "queue": "research", "asked_gpus": gpus, "alone_s": 100.0, "resizes": 0, **given,
    }  # fmt: skip
    return JobOutcome(name=name, submitted_at=begin, started_at=start, ended_at=end, spans=(span,), **whole)


def outcome(*jobs: JobOutcome, gpus: int = 2, ended_at: float | None = None) -> Outcome:
    """An outcome of these jobs."""
    last = max((each.ended_at or 0.0 for each in jobs), default=0.0) if ended_at is None else ended_at
    return Outcome(scenario="s", policy="p", gpus=gpus, jobs=jobs, ended_at=last)


TWO = outcome(job("a", 0, 0, 100, lost_s=18.0), job("b", 50, 100, 200, team="speech", resizes=3, restarts=1))
"""Two jobs of 100 s on both GPUs of the cluster, one after the other; from 50 to 100 s there is twice the demand."""


def test_the_figures_of_two_jobs_are_those_computed_by_hand() -> None:
    """JCTs 100 and 150; contention is 2 in 50 s of each life: rho is 100/(1.5·100) and 150/(4/3·100)."""
    found = figures(TWO)
    assert rhos(TWO) == pytest.approx([100 / 150, 150 / (100 * 4 / 3)])
    assert found.avg_jct == 125
    assert found.p50_jct == 125
    assert found.p99_jct == pytest.approx(149.5)
    assert found.makespan == 200
    assert found.avg_wait == 25
    assert found.utilisation == pytest.approx(1.0)
    assert found.goodput == pytest.approx(1.0)
    assert found.unfair == 0.5
    assert found.worst_rho == pytest.approx(1.125)
    assert found.jain == pytest.approx((1.5 + 1 / 1.125) ** 2 / (2 * (1.5**2 + (1 / 1.125) ** 2)))
    assert (found.resizes, found.restarts, found.not_ended) == (3, 1, 0)
    assert found.lost_gpu_h == pytest.approx(0.01)


def test_a_job_alone_on_what_it_asks_for_is_treated_exactly_fairly() -> None:
    """Rho is 1, and a single team has Jain's 1."""
    found = figures(outcome(job("a", 10, 10, 110)))
    assert found.avg_rho == pytest.approx(1.0)
    assert found.unfair == 0.0
    assert found.jain == pytest.approx(1.0)


def test_jobs_that_did_not_end_are_counted_and_in_no_mean_of_completion_times() -> None:
    """Nor is there a makespan; the GPUs they held count, and their team's speed is zero."""
    stuck = job("b", 0, 100, None, team="speech", done=0.5)
    stuck = replace(stuck, spans=(Span(begin=100, end=150, gpus=2),))
    found = figures(outcome(job("a", 0, 0, 100), stuck, ended_at=200))
    assert found.not_ended == 1
    assert found.avg_jct == 100
    assert found.makespan is None
    assert found.utilisation == pytest.approx(0.75)
    assert found.goodput == pytest.approx(0.75)
    assert found.jain == pytest.approx(0.5)


def test_nothing_is_said_where_no_job_came_or_none_started() -> None:
    """No division by zero, and no figure that looks like one."""
    empty = figures(outcome())
    assert (empty.jobs, empty.avg_jct, empty.makespan, empty.jain, empty.utilisation) == (0, None, None, None, 0.0)
    never = JobOutcome(
        name="a", team="", queue="q", submitted_at=5, started_at=None, ended_at=None, spans=(), asked_gpus=4,
        alone_s=1, resizes=0, done=0.0,
    )  # fmt: skip
    found = figures(outcome(never, ended_at=50))
    assert (found.not_ended, found.avg_wait, found.avg_rho, found.jain) == (1, None, None, None)


def test_jains_index_is_one_for_equals_and_one_over_n_where_one_has_all() -> None:
    """And nothing where all have nothing."""
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([5, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([0, 0]) is None


TIMES = st.integers(0, 10**6)
JOBS = st.lists(st.tuples(TIMES, TIMES, TIMES, st.integers(1, 16), st.sampled_from("abc")), min_size=1, max_size=40)


def made(rows: list[tuple[int, int, int, int, str]]) -> list[JobOutcome]:
    return [
        job(f"j{index}", begin, begin + wait, begin + wait + run + 1, gpus=gpus, team=team, alone_s=run + 1)
        for index, (begin, wait, run, gpus, team) in enumerate(rows)
    ]


@given(JOBS, st.integers(0, 2**16))
def test_the_order_of_jobs_changes_nothing(rows: list[tuple[int, int, int, int, str]], seed: int) -> None:
    """Not a bit of any figure."""
    jobs = made(rows)
    mixed = random.Random(seed).sample(jobs, len(jobs))
    assert figures(outcome(*mixed, gpus=16)) == figures(outcome(*jobs, gpus=16))


@given(JOBS, st.integers(1, 10**6))
def test_the_beginning_of_time_changes_nothing(rows: list[tuple[int, int, int, int, str]], later: int) -> None:
    """All times may be moved together."""
    moved = [(begin + later, *rest) for begin, *rest in rows]
    first, second = (figures(outcome(*made(each), gpus=16)) for each in (rows, moved))  # type: ignore[arg-type]
    assert astuple(first) == pytest.approx(astuple(second), rel=1e-6)


@given(JOBS)
def test_percentiles_and_contention_agree_with_what_is_computed_the_long_way(
    rows: list[tuple[int, int, int, int, str]],
) -> None:
    """numpy's percentiles; the contention summed over every moment at which anything changes."""
    jobs = made(rows)
    found = figures(outcome(*jobs, gpus=16))
    jcts = [each.jct for each in jobs]
    assert found.p99_jct == pytest.approx(np.percentile(np.array(jcts, dtype=float), 99))
    assert found.avg_jct == pytest.approx(np.mean(np.array(jcts, dtype=float)))
    moments = sorted({moment for each in jobs for moment in (each.submitted_at, each.ended_at or 0.0)})
    for each, rho in zip(jobs, rhos(outcome(*jobs, gpus=16)), strict=True):
        spent = 0.0
        for low, high in itertools.pairwise(moments):
            if each.submitted_at <= low < (each.ended_at or 0.0):
                there = [other for other in jobs if other.submitted_at <= low < (other.ended_at or 0.0)]
                spent += max(1.0, sum(other.asked_gpus for other in there) / 16) * (high - low)
        fair = each.alone_s * spent / (each.jct or 1.0)
        assert rho == pytest.approx((each.jct or 0.0) / fair)


def test_every_metric_is_a_figure() -> None:
    """Tables and comparisons go by it."""
    assert set(METRICS) <= set(Figures.__slots__)
