# SPDX-License-Identifier: Apache-2.0
"""A failing scenario made small: as few jobs, nodes and outages as still fail (delta debugging, Zeller 2002). Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kfp_volcano.elastic.simulator.scenario import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.simulator.scenario import Job, Node, Outage, Scenario

__all__ = ["shrunk"]

T = TypeVar("T")


class _Budget:
    """How often it may still be asked whether something fails."""

    def __init__(self, fails: Callable[[Scenario], bool], most: int) -> None:
        self._fails = fails
        self._left = most

    def fails(self, scenario: Scenario) -> bool:
        """Whether it fails; no, where nobody may ask any more."""
        if self._left <= 0 or not scenario.jobs or not scenario.nodes:
            return False
        self._left -= 1
        return self._fails(scenario)

    def fails_with(
        self, made: Callable[[Scenario, tuple[T, ...]], Scenario], scenario: Scenario, kept: tuple[T, ...]
    ) -> bool:
        """Whether what is made of a scenario with some things alone fails."""
        return self.fails(made(scenario, kept))


def shrunk(scenario: Scenario, fails: Callable[[Scenario], bool], *, most_runs: int = 300) -> Scenario:
    """A smaller scenario that fails too, as small as it gets by leaving things out, or within so many runs."""
    budget = _Budget(fails, most_runs)
    before = None
    while before != scenario:
        before = scenario
        scenario = _with_jobs(scenario, _fewer(scenario.jobs, partial(budget.fails_with, _with_jobs, scenario)))
        outages = _fewer(scenario.outages, partial(budget.fails_with, _with_outages, scenario))
        scenario = _with_outages(scenario, outages)
        scenario = _on(scenario, _fewer(scenario.nodes, partial(budget.fails_with, _on, scenario)))
    return scenario


def _fewer(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """As few of the items as still fail: none of those that are left can go (ddmin)."""
    if items and fails(()):
        return ()
    parts = 2
    while len(items) >= parts:
        size = -(-len(items) // parts)
        without = [items[:at] + items[at + size :] for at in range(0, len(items), size)]
        smaller = next((kept for kept in without if kept and fails(kept)), None)
        if smaller is not None:
            items, parts = smaller, max(2, parts - 1)
        elif parts == len(items):
            break
        else:
            parts = min(len(items), 2 * parts)
    return items


def _with_jobs(scenario: Scenario, jobs: tuple[Job, ...]) -> Scenario:
    return _tidied(replace(scenario, jobs=jobs))


def _with_outages(scenario: Scenario, outages: tuple[Outage, ...]) -> Scenario:
    return replace(scenario, outages=outages)


def _on(scenario: Scenario, nodes: tuple[Node, ...]) -> Scenario:
    names = {node.name for node in nodes}
    outages = tuple(outage for outage in scenario.outages if outage.node in names)
    return replace(scenario, nodes=nodes, outages=outages)


def _tidied(scenario: Scenario) -> Scenario:
    """Without queues that no job goes to and none is below."""
    parents = {queue.name: queue.parent for queue in scenario.queues}
    needed: set[str] = {ROOT}
    for name in {job.queue for job in scenario.jobs}:
        while name in parents and name not in needed:
            needed.add(name)
            name = parents[name]  # noqa: PLW2901 - up the tree
    return replace(scenario, queues=tuple(queue for queue in scenario.queues if queue.name in needed))
