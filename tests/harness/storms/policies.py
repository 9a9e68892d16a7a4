# SPDX-License-Identifier: Apache-2.0
"""A policy at random for each queue; and a look over its shoulder: what it decides, beside what it had been told."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.policies.policy import Decision, Policy
from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
from kfp_volcano.schemas.policy import BUILT_IN, QueuePolicy
from storms.promises import wrong_decisions

if TYPE_CHECKING:
    from storms.program import Program

__all__ = ["Watched", "policy_of"]


def policy_of(random: Random) -> Policy:
    """One of those that there are, within its guards."""
    blocks = {
        "threshold": {"up": {"idleShare": random.choice([0.01, 0.01, 0.1, 0.5]), "step": random.choice([None, 1])}},
        "guards": {"resizesPerHour": None},  # a budget lets go within an hour: longer than a storm
    }
    return policy_for(QueuePolicy(name="storm", queues=("*",), policy=random.choice(BUILT_IN), blocks=blocks))


class Watched:
    """A policy whose decisions are compared with what its process has been told by then."""

    def __init__(self, policy: Policy, program: Program) -> None:
        self._policy = policy
        self._program = program
        self.name = policy.name
        self.remember = getattr(policy, "remember", None)
        self.next_change = getattr(policy, "next_change", None)

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """As the policy does."""
        decisions = self._policy.decide(snapshot)
        storm, seen = self._program.storm, self._program.cluster.seen
        storm.decided(self._program, snapshot.queue, decisions)
        for wrong in wrong_decisions(seen, snapshot, decisions):
            storm.broken(f"{self._program.name}, {snapshot.queue}: {wrong}")
        return decisions
