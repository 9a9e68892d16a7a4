"""The one door to the simulator's engines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kfp_volcano.elastic.simulator.allocators.fifo import Fifo
from kfp_volcano.elastic.simulator.allocators.optimus import Optimus
from kfp_volcano.elastic.simulator.allocators.pollux import Pollux
from kfp_volcano.elastic.simulator.allocators.tiresias import Tiresias
from kfp_volcano.elastic.simulator.intervals import Intervals
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.policy import QueuePolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.simulator.allocators.allocator import Allocator
    from kfp_volcano.elastic.simulator.outcome import Outcome
    from kfp_volcano.elastic.simulator.scenario import Scenario

__all__ = ["POLICIES", "simulate"]

Maker: TypeAlias = "Callable[[int], Allocator]"
"""Makes a scheduler from a seed."""

_ALLOCATORS: dict[str, Maker] = {
    Fifo.name: lambda _: Fifo(),
    Tiresias.name: lambda _: Tiresias(),
    Optimus.name: lambda _: Optimus(),
    Pollux.name: lambda _: Pollux(),
}
POLICIES = tuple(_ALLOCATORS)
"""What `simulate` knows by name."""


def simulate(scenario: Scenario, policy: str | QueuePolicy, *, seed: int = 0) -> Outcome:
    """Replay a scenario under a policy: equal arguments give equal outcomes.

    Args:
        scenario: What is replayed.
        policy: One of `POLICIES`, or a Policy as `schemas.policy_validation` gives it.
        seed: Of what is drawn at random, where anything is.

    Raises:
        SpecError: There is no such policy, or it does not take its settings.
    """
    name = policy.policy if isinstance(policy, QueuePolicy) else policy
    if name not in _ALLOCATORS:
        raise SpecError(f"there is no policy {name!r}; known are {', '.join(POLICIES)}", source="policy")
    return replace(Intervals(scenario, _ALLOCATORS[name](seed)).run(), seed=seed)
