# SPDX-License-Identifier: Apache-2.0
"""Another load like that of a scenario: its jobs drawn anew in blocks, so that bursts stay bursts. Pure; seeded."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.scenario import Scenario

__all__ = ["resampled"]


def resampled(scenario: Scenario, seed: int) -> Scenario:
    """As many jobs as the scenario has, drawn from it with the gaps between them.

    The circular block bootstrap (D. N. Politis and J. P. Romano, 1992): blocks of n^(1/3) jobs that came one after
    another, each with the gap before it, begin at places drawn at random and are put end to end. A job that is drawn
    again gets a name of its own. The cluster, its queues and its outages stay. Equal seeds give equal scenarios.
    """
    jobs = scenario.jobs
    if not jobs:
        return scenario
    count = len(jobs)
    length = max(1, round(count ** (1 / 3)))
    starts = np.random.default_rng(seed).integers(count, size=-(-count // length))
    drawn = [(int(start) + offset) % count for start in starts for offset in range(length)][:count]
    times = [job.submitted_at for job in jobs]
    usual = (times[-1] - times[0]) / max(1, count - 1)
    gaps = [usual, *(later - earlier for earlier, later in pairwise(times))]
    at, again, made = times[0] - gaps[drawn[0]], dict[int, int](), []
    for index in drawn:
        at += gaps[index]
        again[index] = again.get(index, 0) + 1
        name = jobs[index].name if again[index] == 1 else f"{jobs[index].name}.{again[index]}"
        made.append(replace(jobs[index], name=name, submitted_at=at))
    return replace(scenario, jobs=tuple(made))
