# SPDX-License-Identifier: Apache-2.0
"""A comparison carried out: each policy on the scenario, then what is asked for beside that, many runs at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from kfp_volcano.elastic.simulator.figures import figures
from kfp_volcano.elastic.simulator.resampling import resampled
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.verdicts import verdicts
from kfp_volcano.volcano.launcher.laboratory.study import Replicated, Study
from kfp_volcano.volcano.launcher.laboratory.sweep import swept, variants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfp_volcano.elastic.simulator.scenario import Scenario
    from kfp_volcano.volcano.launcher.laboratory.contestants import Contestant
    from kfp_volcano.volcano.launcher.laboratory.parallel import Draw
    from kfp_volcano.volcano.launcher.laboratory.sweep import Axis

    Told: TypeAlias = Callable[[str, int, int], None]
    Watched: TypeAlias = Callable[[str, float, int, int], None]

__all__ = ["RESAMPLED", "Loads", "Told", "Watched", "compare"]

RESAMPLED = "jobs are drawn anew from the scenario's, in blocks with the gaps between them (circular block bootstrap)"
"""What is random where a scenario is a trace."""


@dataclass(frozen=True, slots=True)
class Loads:
    """Where other loads come from."""

    draw: Draw
    """The scenario of a seed."""
    how: str

    @classmethod
    def like(cls, scenario: Scenario) -> Loads:
        """Loads drawn from a trace."""
        return cls(partial(resampled, scenario), RESAMPLED)


def compare(
    scenario: Scenario,
    contestants: Sequence[Contestant],
    *,
    seed: int = 0,
    replications: int = 0,
    loads: Loads | None = None,
    axes: Sequence[Axis] = (),
    best_by: str = "avg_jct",
    told: Told = lambda _what, _done, _total: None,
    watched: Watched = lambda _what, _at_s, _ended, _jobs: None,
) -> Study:
    """Compare policies on a scenario; the others are compared with the first.

    Args:
        scenario: What is replayed.
        contestants: The policies.
        seed: Of the policies; replications have those that follow it.
        replications: On how many other loads, too; none for none.
        loads: Where these come from; by default the scenario's own jobs, drawn anew.
        axes: Settings to be tried out, on the other loads where there are some, else on the scenario.
        best_by: The metric that the best setting is found by.
        told: Called as things go: with what is being done, how much of it is done, and of how much.
        watched: Called as the clock of a policy's simulation of the scenario goes: with the policy, the time in
            seconds, how many jobs have ended, and of how many.

    Raises:
        SpecError: A setting is none of these policies', or has a value that it may not have.
        UnavailableError: Ray does not start.
    """
    tried = variants(contestants, axes) if axes else ()
    outcomes = {}
    for index, each in enumerate(contestants):
        told(each.name, index, len(contestants))
        watch = partial(_watch, watched, each.name, len(scenario.jobs))
        outcomes[each.name] = replace(simulate(scenario, each.policy, seed=seed, watch=watch), policy=each.name)
    told("policies", len(contestants), len(contestants))
    study = Study(
        scenario=scenario,
        seed=seed,
        outcomes=outcomes,
        figures={name: figures(outcome) for name, outcome in outcomes.items()},
    )
    if not (replications or tried):
        return study
    # Ray takes seconds to load, which a comparison of a few policies is spared.
    from kfp_volcano.volcano.launcher.laboratory.parallel import Run, simulated  # noqa: PLC0415

    loads = loads or Loads.like(scenario)
    seeds = range(seed + 1, seed + 1 + replications) if replications else [seed]
    runners = [*(contestants if replications else ()), *(each.contestant for each in tried)]
    runs = [Run(each.policy, each_seed) for each in runners for each_seed in seeds]
    draw = loads.draw if replications else partial(_always, scenario)
    found = simulated(draw, runs, told=lambda done: told("other loads and settings", done, len(runs)))
    by_runner = [tuple(found[at : at + len(seeds)]) for at in range(0, len(found), len(seeds))]
    replicated = None
    if replications:
        own = {each.name: by_runner[index] for index, each in enumerate(contestants)}
        replicated = Replicated(count=replications, how=loads.how, figures=own, verdicts=verdicts(own))
    settings = swept(axes, best_by, tried, by_runner[-len(tried) :]) if tried else None
    return replace(study, replicated=replicated, swept=settings)


def _watch(watched: Watched, policy: str, jobs: int, at_s: float, ended: int) -> None:
    watched(policy, at_s, ended, jobs)


def _always(scenario: Scenario, _seed: int) -> Scenario:
    return scenario
