# SPDX-License-Identifier: Apache-2.0
"""Loads drawn anew from a scenario's own."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.simulator.resampling import resampled
from kfp_volcano.elastic.simulator.scenario import Job, Node, Scenario
from kfp_volcano.elastic.simulator.traced import Traced


def scenario(times: list[int]) -> Scenario:
    """A job at each time, told apart by its work."""
    jobs = tuple(
        Job(
            name=f"j{index}",
            submitted_at=float(at),
            work=Traced(duration_s=float(index + 1), gpus=1),
            workers=1,
            min_workers=1,
            max_workers=1,
        )
        for index, at in enumerate(sorted(times))
    )
    return Scenario(name="s", nodes=(Node(name="n", gpus=4),), jobs=jobs)


@given(st.lists(st.integers(0, 10**5), max_size=60), st.integers(0, 99))
def test_a_load_drawn_anew_has_as_many_jobs_in_order_with_names_of_their_own(times: list[int], seed: int) -> None:
    """And is the same for the same seed; each job is one of the scenario's."""
    given_ = scenario(times)
    drawn = resampled(given_, seed)
    assert drawn == resampled(given_, seed)
    assert len(drawn.jobs) == len({job.name for job in drawn.jobs}) == len(times)
    at = [job.submitted_at for job in drawn.jobs]
    assert at == sorted(at)
    works = [job.work for job in given_.jobs]
    assert all(job.work in works for job in drawn.jobs)


def test_jobs_that_came_together_come_together_again() -> None:
    """64 jobs in bursts of 8, an hour apart: gaps are still either none or an hour, or the mean where time wraps."""
    drawn = resampled(scenario([3600 * (index // 8) for index in range(64)]), 1)
    at = [job.submitted_at for job in drawn.jobs]
    gaps = {round(later - earlier) for earlier, later in pairwise(at)}
    assert {0, 3600} <= gaps <= {0, 3600, 400}
    assert resampled(scenario(list(range(64))), 1) != resampled(scenario(list(range(64))), 2)
