# SPDX-License-Identifier: Apache-2.0
"""Dominant-resource fairness between teams: with GPUs alone, a queue for each, all with an equal share. Pure.

Volcano serves the queue first that has the least part of what it deserves (plugin `capacity`); of one resource that is
max-min fairness, as DRF is (Ghodsi et al., NSDI'11).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.scenario import Queue

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.scenario import Scenario

__all__ = ["by_team"]


def by_team(scenario: Scenario) -> Scenario:
    """The same with a queue for each team, none of which may take anything back."""
    teams = sorted({job.team or job.queue for job in scenario.jobs})
    share = max(1, scenario.gpus // max(1, len(teams)))
    return replace(
        scenario,
        queues=tuple(Queue(name=team, deserved=share, reclaimable=False) for team in teams),
        jobs=tuple(replace(job, queue=job.team or job.queue) for job in scenario.jobs),
    )
