# SPDX-License-Identifier: Apache-2.0
"""The one door to the simulator's engines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.simulator.allocators.optimus import Optimus
from kfp_volcano.elastic.simulator.allocators.pollux import Pollux
from kfp_volcano.elastic.simulator.allocators.sia import Sia
from kfp_volcano.elastic.simulator.allocators.tiresias import Tiresias
from kfp_volcano.elastic.simulator.events import Events
from kfp_volcano.elastic.simulator.greedy import Greedy
from kfp_volcano.elastic.simulator.intervals import Intervals
from kfp_volcano.elastic.simulator.teams import by_team
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.policy import BUILT_IN, QueuePolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.simulator.allocators.allocator import Allocator
    from kfp_volcano.elastic.simulator.outcome import Outcome
    from kfp_volcano.elastic.simulator.scenario import Scenario

    Watch: TypeAlias = Callable[[float, int], None]

__all__ = ["POLICIES", "Watch", "simulate"]

Maker: TypeAlias = "Callable[[int], Allocator]"
"""Makes a scheduler from a seed."""
Engine: TypeAlias = "Callable[[Scenario], Events]"

RAY_S = 60.0
"""`elastic_resize_monitor_interval_s` of Ray Train."""


_ALLOCATORS: dict[str, Maker] = {
    Tiresias.name: lambda _: Tiresias(),
    Optimus.name: lambda _: Optimus(),
    Pollux.name: lambda _: Pollux(),
    Sia.name: lambda _: Sia(),
}
"""Schedulers that place all jobs themselves."""
_FIXED: dict[str, Engine] = {
    "fifo": lambda scenario: Events(scenario, "fifo", None, by_priority=False),
    "priority": lambda scenario: Events(scenario, "priority", None),
    "drf": lambda scenario: Events(by_team(scenario), "drf", None, by_priority=False),
}
"""Gangs of the size that they ask for, by Volcano alone."""
_SIMPLE: dict[str, Engine] = {
    "greedy": lambda scenario: Events(scenario, "greedy", Greedy(), cooldown_s=0.0),
    "ray": lambda scenario: Events(scenario, "ray", Greedy(), cooldown_s=0.0, every_s=RAY_S),
}
"""Rules to compare with: whatever is free is taken at every change, or as by Ray Train every 60 seconds."""
POLICIES = (*_FIXED, *_SIMPLE, *_ALLOCATORS, *BUILT_IN)
"""What `simulate` knows by name."""


def simulate(
    scenario: Scenario, policy: str | QueuePolicy, *, seed: int = 0, watch: Watch = lambda _at, _ended: None
) -> Outcome:
    """Replay a scenario under a policy: equal arguments give equal outcomes.

    Args:
        scenario: What is replayed.
        policy: One of `POLICIES`, those of the autoscaler with their defaults; or a Policy as
            `schemas.policy_validation` gives it.
        seed: Of what is drawn at random, where anything is.
        watch: Hears, each time its clock has moved, what time it is and how many jobs have ended.

    Raises:
        SpecError: There is no such policy, or it does not take its settings.
    """
    if isinstance(policy, QueuePolicy):
        run = Events(scenario, policy.name, policy_for(policy)).run
    elif policy in _ALLOCATORS:
        run = Intervals(scenario, _ALLOCATORS[policy](seed)).run
    elif policy in BUILT_IN:
        run = Events(scenario, policy, policy_for(QueuePolicy(name=policy, queues=("*",), policy=policy))).run
    elif policy in _FIXED or policy in _SIMPLE:
        run = (_FIXED.get(policy) or _SIMPLE[policy])(scenario).run
    else:
        raise SpecError(f"there is no policy {policy!r}; known are {', '.join(POLICIES)}", source="policy")
    return replace(run(watch), scenario=scenario.name, seed=seed)
