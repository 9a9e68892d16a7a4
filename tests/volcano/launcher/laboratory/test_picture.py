"""What the page draws: a small golden pair, and what holds for any number of jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.simulator.figures import figures
from kfp_volcano.volcano.launcher.laboratory.picture import MOST_JOBS, MOST_LANES, picture
from kfp_volcano.volcano.launcher.laboratory.study import Study
from kfp_volcano.volcano.launcher.laboratory.told import markdown
from outcomes import outcome, outcomes, scenario


def study(count: int = 4) -> Study:
    made = outcomes(count)
    return Study(
        scenario=scenario(count), seed=0, outcomes=made, figures={name: figures(each) for name, each in made.items()}
    )


def test_the_small_comparison_is_drawn_and_told_as_ever(root: Path) -> None:
    """GPUs by team, lanes, decisions and table of four jobs under two policies; the story and the figures."""
    drawn = json.dumps(picture(outcomes()), indent=1) + "\n"
    golden = root / "tests" / "golden"
    assert drawn == (golden / "laboratory.picture.json").read_text(encoding="utf-8")
    assert markdown(study()) == (golden / "laboratory.summary.md").read_text(encoding="utf-8")


@given(st.integers(1, 30), st.floats(0, 500))
def test_the_gpus_drawn_are_those_that_jobs_held(count: int, wait: float) -> None:
    """The area under each team's steps is its GPU time."""
    one = outcome("p", wait, count)
    drawn = picture({"p": one})
    (timeline,) = drawn["policies"]
    times = timeline["times"]
    for team, held in zip(drawn["teams"], timeline["held"], strict=True):
        area = sum(gpus * (after - at) for gpus, at, after in zip(held, times, times[1:], strict=False))
        expected = sum(job.gpu_s for job in one.jobs if job.team == team)
        assert area == pytest.approx(expected, rel=1e-3, abs=0.1 * len(times))


def test_of_many_jobs_some_are_drawn_and_what_is_left_out_is_said() -> None:
    """The longest, in the order of submission; the areas stay, as means."""
    count = 3000
    drawn = picture({"p": outcome("p", 1.0, count)})
    assert [job[0] for job in drawn["lanes"]] == [f"job-{index}" for index in range(count - MOST_LANES, count)]
    assert len(drawn["rows"]) == MOST_JOBS
    assert len(drawn["policies"][0]["times"]) < 2000
    assert len(json.dumps(drawn)) < 400_000
    said = " ".join(drawn["left_out"])
    assert "400 of 3,000 jobs" in said
    assert "means over" in said
