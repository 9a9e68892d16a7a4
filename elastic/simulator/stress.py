# SPDX-License-Identifier: Apache-2.0
"""How much load a policy bears: more and more of it until a promise is broken, and the smallest scenario that shows it.

The load is how much faster jobs come than the scenario says: times of submission are divided by it. It is doubled, or
halved, until one load holds and another breaks; then the two are brought together. What breaks at the least of them is
made small, and written as a Scenario document: a test that fails until the policy is better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.simulator.document import document_of
from kfp_volcano.elastic.simulator.promises import Promises, breaches
from kfp_volcano.elastic.simulator.scenario import ROOT
from kfp_volcano.elastic.simulator.shrinking import shrunk
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.source import generate
from kfp_volcano.schemas.scenario_validation import scenario as scenario_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.simulator.promises import Breach
    from kfp_volcano.elastic.simulator.scenario import Job, Scenario
    from kfp_volcano.elastic.simulator.simulate import Watch
    from kfp_volcano.schemas.policy import QueuePolicy

__all__ = ["Stressed", "at_load", "until_broken"]

_LEAST, _MOST = 1.0 / 64.0, 64.0
_CLOSE = 1.05
"""Loads that are so close to each other are as good as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stressed:
    """How much a policy bears."""

    holds_at: float | None
    """The greatest load at which all promises were kept; None: not even at the least that was tried."""
    breaks_at: float | None
    """The least load at which one was broken; None: not even at the greatest that was tried."""
    broken: tuple[Breach, ...] = ()
    """What is broken at that load."""
    small: Scenario | None = None
    """The smallest scenario found that breaks the first of these promises."""
    small_broken: tuple[Breach, ...] = ()
    """What is broken in it."""
    document: dict[str, Any] | None = None
    """That scenario, written down."""
    runs: int = 0


def at_load(scenario: Scenario, load: float) -> Scenario:
    """The scenario with jobs that come so many times as fast."""
    jobs = tuple(replace(job, submitted_at=job.submitted_at / load) for job in scenario.jobs)
    return replace(scenario, jobs=jobs)


def until_broken(
    scenario: Scenario,
    policy: str | QueuePolicy,
    promises: Promises | None = None,
    *,
    seed: int = 0,
    most_runs: int = 300,
    told: Callable[[str], None] = lambda _: None,
    watch: Watch = lambda _at, _ended: None,
) -> Stressed:
    """Raise the load until the policy breaks a promise, and make what breaks small.

    Args:
        scenario: What is replayed, at load 1.
        policy: As `simulate` takes it.
        promises: What has to hold; None: the usual ones.
        seed: As `simulate` takes it.
        most_runs: Simulations that making it small may take.
        told: Hears how far it is, in words.
        watch: Hears how far each simulation is, as in `simulate`.

    Raises:
        SpecError: There is no such policy; or the scenario's queues cannot be written as a tree.
    """
    stress = _Stress(scenario, policy, promises or Promises(), seed, told, watch)
    holds, breaks = stress.bounds()
    if breaks is None:
        return Stressed(holds_at=holds, breaks_at=None, runs=stress.runs)
    broken = stress.broken(breaks)
    breaking = replace(at_load(scenario, breaks), name=_name(scenario.name))
    told(f"load {breaks:.3g} breaks it; looking for the smallest case that does")
    small = stress.small(breaking, broken[0].promise, most_runs)
    if small:
        told(f"{len(small.jobs)} of {len(scenario.jobs)} jobs on {small.gpus} GPUs break it still")
    document = document_of(small, small.name) if small else None
    return Stressed(
        holds_at=holds,
        breaks_at=breaks,
        broken=broken,
        small=small,
        small_broken=stress.of(small) if small else (),
        document=document,
        runs=stress.runs,
    )


def _name(name: str) -> str:
    kept = "".join(each if each.isascii() and each.isalnum() else "-" for each in name).strip("-")
    return f"{kept or 'scenario'}-broken"


class _Stress:
    def __init__(
        self,
        scenario: Scenario,
        policy: str | QueuePolicy,
        promises: Promises,
        seed: int,
        told: Callable[[str], None],
        watch: Watch,
    ) -> None:
        self.runs = 0
        self._scenario = scenario
        self._policy = policy
        self._promises = promises
        self._seed = seed
        self._told = told
        self._watch = watch
        self._known: dict[float, tuple[Breach, ...]] = {}

    def of(self, scenario: Scenario) -> tuple[Breach, ...]:
        """What is broken in a scenario."""
        self.runs += 1
        outcome = simulate(scenario, self._policy, seed=self._seed, watch=self._watch)
        return breaches(scenario, outcome, self._promises)

    def broken(self, load: float) -> tuple[Breach, ...]:
        """What is broken at a load."""
        if load not in self._known:
            found = self._known[load] = self.of(at_load(self._scenario, load))
            self._told(f"load {load:.3g}: " + (found[0].text if found else "all promises are kept"))
        return self._known[load]

    def bounds(self) -> tuple[float | None, float | None]:
        """The greatest load found that holds, and the least that breaks, close together."""
        low = high = 1.0
        if self.broken(1.0):
            while self.broken(low):
                if low <= _LEAST:
                    return None, low
                high, low = low, low / 2.0
        else:
            while not self.broken(high):
                if high >= _MOST:
                    return high, None
                low, high = high, high * 2.0
        while high / low > _CLOSE:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if self.broken(middle) else (middle, high)
        return low, high

    def small(self, scenario: Scenario, promise: str, most_runs: int) -> Scenario | None:
        """The smallest scenario that breaks the same promise and can be written down; None where none can."""

        def fails(candidate: Scenario) -> bool:
            return _fits(candidate) and any(each.promise == promise for each in self.of(candidate))

        written = _written(scenario) if _fits(scenario) else None
        if written is None or not fails(written):
            return None
        first = min(each.at for each in self.of(written) if each.promise == promise)
        sooner = replace(written, jobs=tuple(job for job in written.jobs if job.submitted_at <= first))
        found = shrunk(sooner if fails(sooner) else written, fails, most_runs=most_runs)
        return _written(found) if fails(_written(found)) else None


def _fits(scenario: Scenario) -> bool:
    """Whether each job could run if it were alone: that one never starts which cannot shows nothing.

    Nor does it that queues do not get what they deserve where the nodes do not have so much.
    """

    def could(job: Job) -> bool:
        nodes = [node for node in scenario.nodes if not job.gpu_classes or node.gpu_class in job.gpu_classes]
        return sum(node.gpus // job.gpus_per_worker for node in nodes) >= job.workers

    deserved = sum(queue.deserved or 0 for queue in scenario.queues if queue.parent == ROOT)
    return deserved <= scenario.gpus and all(map(could, scenario.jobs))


def _written(scenario: Scenario) -> Scenario:
    """The scenario as a document says it."""
    return generate(scenario_spec(document_of(scenario, scenario.name)), folder=Path())
