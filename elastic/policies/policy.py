# SPDX-License-Identifier: Apache-2.0
"""What a policy is: a function from a snapshot of a queue to one decision for each elastic Job. Pure."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - types of fields are read when logs are
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.gangs import Service
    from kfp_volcano.elastic.policies.memory import Mode
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot

__all__ = ["Changing", "Decision", "Moded", "Policy", "Reason", "Serving", "hold"]


class Reason(str, Enum):
    """Why a Job is resized or left alone, in one word."""

    QUEUE_IDLE = "QueueIdle"
    """Grows: enough of what the queue may use is idle."""
    GANG_PENDING = "GangPending"
    """Shrinks: a gang waits that its surplus serves."""
    RECLAIMED = "Reclaimed"
    """Shrinks: its queue has borrowed what a gang of the queue that it is from needs."""
    QUEUE_TIGHT = "QueueTight"
    """Shrinks: more of what the queue may use is in use, or more of its pods wait, than its policy wants."""
    OVERRIDE = "Override"
    """A person has set the size."""
    UNPLACED = "Unplaced"
    """Shrinks: surplus workers have waited too long for a node; holes would compete with gangs that could run."""
    ABOVE_TARGET = "AboveTarget"
    """Grows: a metric of its workers, or of what they serve, is above its target."""
    BELOW_TARGET = "BelowTarget"
    """Shrinks: all such metrics are below their targets."""
    MORE_GOODPUT = "MoreGoodput"
    """Changes: with that size it trains faster, by more than the change costs."""
    YIELDS = "Yields"
    """Shrinks: its surplus is worth more to other Jobs of the queue."""

    AWAITS_ROOM = "AwaitsRoom"
    """Stays: it is to grow as soon as the GPUs are free that others give."""
    NOT_WORTH_IT = "NotWorthIt"
    """Stays: another size would gain less than the change costs."""
    WITHIN_TOLERANCE = "WithinTolerance"
    """Stays: a metric is off its target, by no more than its tolerance."""
    STABILISING = "Stabilising"
    """Stays: what was recommended within its stabilisation window speaks against a change."""
    RATE_LIMITED = "RateLimited"
    """Stays: it has changed as much as its policies allow in their periods, or they allow no change."""
    METRICS_MISSING = "MetricsMissing"
    """Stays: what its size is to follow is not known at present."""
    POLICY_FAILED = "PolicyFailed"
    """Stays: the policy did not decide, but failed."""
    STEADY = "Steady"
    """Stays: nothing calls for a change."""
    AT_MAXIMUM = "AtMaximum"
    """Stays: GPUs are idle, but it has all the workers it may have."""
    AT_MINIMUM = "AtMinimum"
    """Stays: a gang waits, but it has no surplus to give."""
    SURPLUS_TOO_SMALL = "SurplusTooSmall"
    """Stays: a gang waits that even all surplus of the queue would not serve, so that giving it were in vain."""
    GANG_FIRST = "GangFirst"
    """Stays: the GPUs that are free, or coming free, are those a waiting gang needs."""
    NO_ROOM = "NoRoom"
    """Stays: GPUs are idle, but not enough for its next size, or not together on nodes."""
    FAIR_SHARE = "FairShare"
    """Stays: it would grow beyond what its queue deserves, while a gang waits that is within its share."""
    RESIZE_OPEN = "ResizeOpen"
    """Stays: the last request has not been carried out yet."""
    COOLDOWN = "Cooldown"
    """Stays: its last resize was too short a time ago."""
    BUDGET = "Budget"
    """Stays: it has had as many resizes within an hour as it may have."""
    DIVERGING = "Diverging"
    """Does not grow: its loss is not finite, or climbs away from the best it had."""
    ROLLED_BACK = "RolledBack"
    """Does not grow: a resize of it was taken back a short time ago."""
    WATCHED = "Watched"
    """Does not grow, or goes back to the size at which it was fine: its training's own watch says so."""
    NO_BENEFIT = "NoBenefit"
    """Does not grow: what that saves over the remaining work is less than what a resize costs."""
    BREAKER_OPEN = "BreakerOpen"
    """Stays: too many resizes of the queue have failed; no automatic one until it closes again."""
    STALE = "Stale"
    """Stays: the cluster has not been seen for too long to decide anything."""
    NEARLY_DONE = "NearlyDone"
    """Stays: its training ends so soon that growing would not pay."""
    FAILED_BEFORE = "FailedBefore"
    """Stays, even for a gang: its last resize came to nothing a short time ago."""
    HOLD = "Hold"
    """Stays: a person wants no automatic resize."""
    NO_GPUS = "NoGpus"
    """Stays: its workers hold no GPUs, so that its size is nothing to the queue."""
    OUT_OF_RANGE = "OutOfRange"
    """Stays: the policy, or a person, asked for a size that the Job may not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The number of workers one Job should have, and why."""

    job: str
    """namespace/name."""
    from_workers: int
    to_workers: int
    reason: Reason
    explanation: str
    """One sentence for people, with the numbers it rests on."""
    urgent: bool
    """Owed to a gang that waits: neither cooldown nor a step of a pipeline is waited for."""
    policy: str
    recommended: int | None = None
    """What the policy computed before stabilising it; None where it knows no such thing. Remembered for later turns."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What it was computed from, by name, beside what the sentence says."""

    @property
    def resizes(self) -> bool:
        """Whether the Job is to change."""
        return self.to_workers != self.from_workers


class Policy(Protocol):
    """What decides. Equal snapshots give equal decisions, whatever the order of jobs and gangs in them."""

    @property
    def name(self) -> str:
        """What records call it."""
        ...

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """Exactly one decision for each of the snapshot's jobs, also where nothing changes; sorted by job."""
        ...


@runtime_checkable
class Serving(Policy, Protocol):
    """A policy that starts from what gangs are served; its `decide` is this with `gangs.serve(snapshot)`."""

    def decide_beside(self, snapshot: QueueSnapshot, service: Service) -> tuple[Decision, ...]:
        """As `decide`, where it is known already what the gangs are served."""
        ...


@runtime_checkable
class Moded(Policy, Protocol):
    """A policy that is one of several things at a time, which is remembered for it."""

    def mode(self, snapshot: QueueSnapshot) -> Mode | None:
        """What it is at this snapshot; None for nothing to remember."""
        ...


@runtime_checkable
class Changing(Policy, Protocol):
    """A policy whose decisions may change although nothing happens, because time passes."""

    def next_change(self, snapshot: QueueSnapshot) -> float | None:
        """When they next may, Unix seconds; None if they do not."""
        ...


def hold(job: ElasticJob, reason: Reason, explanation: str, policy: str) -> Decision:
    """The decision to leave a Job as it is."""
    return Decision(
        job=job.key,
        from_workers=job.workers,
        to_workers=job.workers,
        reason=reason,
        explanation=explanation,
        urgent=False,
        policy=policy,
    )
