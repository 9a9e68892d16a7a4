# SPDX-License-Identifier: Apache-2.0
"""The policy `adaptive`: aggressive while the queue is idle, careful while it is tight; switches by itself. Pure.

It is one of two policies at a time. Which one is remembered, and changes only when what is seen has spoken for the
other for a while, at a share of idle GPUs that is another for the way there than for the way back: that is its
hysteresis. Where nothing is remembered, as after a restart, it is careful.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.policies.gangs import serve
from kfp_volcano.elastic.policies.memory import Mode
from kfp_volcano.elastic.policies.outlook import Rest
from kfp_volcano.elastic.policies.policy import Changing, Policy, Serving
from kfp_volcano.elastic.policies.room import room_of, unclaimed
from kfp_volcano.elastic.policies.settings import AdaptiveSettings, ThresholdSettings, Up
from kfp_volcano.elastic.policies.threshold import Threshold

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.outlook import Outlook
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot

__all__ = ["AGGRESSIVE", "CAREFUL", "Adaptive"]

AGGRESSIVE, CAREFUL = "aggressive", "careful"
"""Names of the modes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Two policies, one at a time."""

    name: ClassVar[str] = "adaptive"

    settings: AdaptiveSettings = field(default_factory=AdaptiveSettings)
    aggressive: Policy = field(default_factory=lambda: Threshold(settings=ThresholdSettings(up=Up(idle_share=0.1))))
    """Decides while the queue is idle; by default grows while a tenth of it is."""
    careful: Policy = field(default_factory=lambda: Threshold(settings=ThresholdSettings(up=Up(step=1))))
    """Decides while it is not; by default grows a size at a time, while half of it is idle."""

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """One decision for each Job, sorted by key; see `Policy`."""
        return self.decide_beside(snapshot, serve(snapshot))

    def decide_beside(self, snapshot: QueueSnapshot, service: Service) -> tuple[Decision, ...]:
        """As `decide`, where it is known already what the gangs are served; see `Serving`."""
        idle = self._idle_share(snapshot)
        mode = self._mode(snapshot.memory.mode, idle, snapshot.at)
        policy = self._policy(mode)
        decisions = policy.decide_beside(snapshot, service) if isinstance(policy, Serving) else policy.decide(snapshot)
        return tuple(
            replace(
                decision,
                explanation=f"{mode.name}, {idle:.0%} of the queue idle: {decision.explanation}",
                policy=self.name,
                numbers={**decision.numbers, "idle_share": idle, "mode_since": mode.since},
            )
            for decision in decisions
        )

    def mode(self, snapshot: QueueSnapshot) -> Mode:
        """What it is at this snapshot; see `Moded`."""
        return self._mode(snapshot.memory.mode, self._idle_share(snapshot), snapshot.at)

    @property
    def steadfast(self) -> bool:
        """Whether both are; see `Resting`."""
        return isinstance(self.aggressive, Threshold) and isinstance(self.careful, Threshold)

    def rest(self, outlook: Outlook) -> Rest | None:
        """Whether it resizes nothing; see `Resting`."""
        free = max(0, outlook.free_gpus - outlook.waiting_gpus)
        share = free / outlook.limit_gpus if outlook.limit_gpus > 0 else 0.0
        mode = self._mode(outlook.mode, share, outlook.at)
        policy = self._policy(mode)
        if not isinstance(policy, Threshold) or policy.rest(outlook) is None:
            return None
        return Rest(mode, None if mode.contrary_since is None else self._switches_at(mode))

    def _mode(self, before: Mode | None, idle: float, at: float) -> Mode:
        mode = before if before and before.name in {AGGRESSIVE, CAREFUL} else Mode(name=CAREFUL, since=at)
        settings, aggressive = self.settings, mode.name == AGGRESSIVE
        if not (idle <= settings.tight_share if aggressive else idle >= settings.idle_share):
            return replace(mode, contrary_since=None)
        mode = mode if mode.contrary_since is not None else replace(mode, contrary_since=at)
        if at < self._switches_at(mode):
            return mode
        return Mode(name=CAREFUL if aggressive else AGGRESSIVE, since=at)

    def next_change(self, snapshot: QueueSnapshot) -> float | None:
        """When it switches if nothing happens, or the policy that it is changes by itself; see `Changing`."""
        mode = self.mode(snapshot)
        policy = self._policy(mode)
        times = [self._switches_at(mode)] if mode.contrary_since is not None else []
        if isinstance(policy, Changing) and (at := policy.next_change(snapshot)) is not None:
            times.append(at)
        return min(times, default=None)

    def _switches_at(self, mode: Mode) -> float:
        waits = self.settings.tight_for_s if mode.name == AGGRESSIVE else self.settings.idle_for_s
        return (0.0 if mode.contrary_since is None else mode.contrary_since) + waits

    def _policy(self, mode: Mode) -> Policy:
        return self.aggressive if mode.name == AGGRESSIVE else self.careful

    def _idle_share(self, snapshot: QueueSnapshot) -> float:
        """Part of what the queue may use that is free and that no gang waits for."""
        free = unclaimed(room_of(snapshot), snapshot).gpus - sum(gang.gpus for gang in snapshot.pending)
        return max(0, free) / snapshot.limit_gpus if snapshot.limit_gpus > 0 else 0.0
