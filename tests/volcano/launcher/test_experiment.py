# SPDX-License-Identifier: Apache-2.0
"""Groups of trainings compared at an equal budget."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.volcano.launcher.experiment import Trial, compared, trial
from kfp_volcano.volcano.launcher.experiment_steps import seeded
from kfp_volcano.volcano.launcher.experiment_told import markdown, page, told


def ended(group: str, seed: int, last: float, *, hours: float = 1.0, samples: float = 100.0) -> Trial:
    """A training whose metric grows from 0 to what it ends with."""
    points = ((0.0, 0.0, 0.0), (samples, hours, last))
    return Trial(group=group, seed=seed, points=points, gpu_hours=hours, wall_s=hours * 3600)


def compare(trials: list[Trial], groups: tuple[str, ...] = ("a", "b"), **given: Any) -> Any:
    """By accuracy, for samples, unless said otherwise."""
    return compared(trials, groups, **{"metric": "accuracy", "mode": "max", "budget": "samples", **given})


def test_an_interval_holds_the_difference_as_often_as_it_says() -> None:
    """On pairs made with a known one, in about 95 of 100 experiments, however much seeds differ."""
    rng, hits = random.Random(3), 0
    for _ in range(400):
        trials = []
        for seed in range(6):
            base = rng.gauss(0.5, 1.0)
            trials += [ended("a", seed, base), ended("b", seed, base + rng.gauss(0.1, 0.05))]
        (found,) = compare(trials).differences["accuracy"]
        hits += found.low <= 0.1 <= found.high
    assert 366 <= hits <= 394


def test_all_are_read_where_the_one_that_used_least_ended() -> None:
    """Of samples, or of GPU-hours: between two evaluations on the line between them."""
    trials = [ended("a", 0, 0.8, hours=1.0, samples=100), ended("b", 0, 0.9, hours=4.0, samples=200)]
    by_samples, by_hours = compare(trials), compare(trials, budget="gpu-hours")
    assert (by_samples.limit, by_hours.limit) == (100, 1.0)
    assert by_samples.measures["accuracy"]["b"].mean == pytest.approx(0.45)
    assert by_hours.measures["accuracy"]["b"].mean == pytest.approx(0.225)
    assert by_hours.measures["accuracy"]["a"].mean == pytest.approx(0.8)


def test_gpu_hours_are_those_that_were_held() -> None:
    """Two workers for an hour, then four for half of one, two GPUs each; half-way in time is half-way in samples."""
    result = {
        "workers": [[0.0, 2], [3600.0, 4], [5400.0, 4]],
        "progress": [[3600.0, 100], [5400.0, 200]],
        "metrics": {"accuracy": [[50, 0.1], [100, 0.2], [200, 0.4]]},
    }
    found = trial("a", 0, result, metric="accuracy", gpus=2)
    assert found.points == ((50.0, 2.0, 0.1), (100.0, 4.0, 0.2), (200.0, 8.0, 0.4))
    assert (found.gpu_hours, found.wall_s) == (8.0, 5400.0)
    assert found.workers == pytest.approx((2 * 3600 + 4 * 1800) / 5400)
    assert Trial.load(found.dump()) == found


def test_a_long_training_fits_into_an_argument_of_the_comparison() -> None:
    """Sixty of them, however often each was evaluated; where it ended is exact."""
    evaluations = [[step, 1 / (step + 1)] for step in range(1, 5001)]
    result = {
        "workers": [[0.0, 1], [3600.0, 1]],
        "progress": [[0.72 * step, step] for step in range(1, 5001)],
        "metrics": {"accuracy": evaluations},
    }
    found = trial("a", 0, result, metric="accuracy", gpus=1)
    assert found.points[0][0] == 1
    assert found.points[-1] == (5000.0, 1.0, pytest.approx(1 / 5001, rel=1e-6))
    assert len(json.dumps([found.dump()] * 60)) < 128 * 1024
    assert Trial.load(found.dump()) == found


def test_a_training_that_failed_does_not_count_and_is_told() -> None:
    """Its seed drops out of the pairs."""
    failed = trial(
        "b", 1, {"workers": None, "metrics": None}, metric="accuracy", gpus=1, message="it ran out of memory"
    )
    trials = [ended("a", seed, 0.5 + seed / 100) for seed in range(3)] + [
        ended("b", 0, 0.7),
        ended("b", 2, 0.7),
        failed,
    ]
    found = compare(trials)
    assert found.measures["accuracy"]["b"].n == 2
    assert found.differences["accuracy"][0].by == pytest.approx(0.19)
    assert "b with seed 1 does not count: it ran out of memory." in told(found)
    with pytest.raises(SpecError, match="b, seed 1: it ran out of memory"):
        compare([failed])


def test_what_logs_nothing_or_no_number_does_not_count() -> None:
    """And it says what to do."""
    steps = {"workers": [[0.0, 1], [9.0, 1]], "progress": [[9.0, 9]]}
    silent = trial("a", 0, {**steps, "metrics": {"loss": [[9, 1.0]]}}, metric="accuracy", gpus=1)
    assert silent.message == "it logged no accuracy: training.log(accuracy=...)"
    diverged = trial("a", 0, {**steps, "metrics": {"accuracy": [[5, 0.5], [9, None]]}}, metric="accuracy", gpus=1)
    assert "not a number" in diverged.message


def test_the_verdict_knows_which_way_is_better() -> None:
    """More accuracy is better, more loss is worse, and what lies within the interval is no difference."""
    trials = [ended("a", seed, 0.5 + seed / 1000) for seed in range(3)]
    trials += [ended("b", seed, 0.6 + seed / 900, hours=2 + seed / 100) for seed in range(3)]
    assert "b is better in accuracy" in told(compare(trials))[1]
    assert "uses more GPU-hours" in told(compare(trials))[1]
    assert "b is worse in loss" in told(compare(trials, metric="loss", mode="min"))[1]
    same = trials[:3] + [ended("b", seed, 0.5 + (-1) ** seed / 10) for seed in range(3)]
    assert "b shows no difference in accuracy" in told(compare(same))[1]
    assert "nothing can be said" in told(compare([trials[0], trials[3]]))[1]


def test_the_page_holds_all_and_asks_for_nothing() -> None:
    """Names are text in it, and it needs no other host."""
    trials = [ended(group, seed, 0.5 + seed / 10) for group in ("<b>", "b") for seed in range(2)]
    found = compare(trials, ("<b>", "b"))
    html = page(found)
    assert "<b>" not in html.replace("&lt;b&gt;", "")
    assert html.count("<svg") == 2
    assert not re.search(r"(src|href)=\"(?!#)", html)
    assert "| b | 2 |" in markdown(found)


def test_the_seed_reaches_every_text_of_a_spec() -> None:
    """Nothing else changes."""
    assert seeded({"a": ["--seed", "{seed}", 3], "b": {"c": "s{seed}"}}, 7) == {
        "a": ["--seed", "7", 3],
        "b": {"c": "s7"},
    }
