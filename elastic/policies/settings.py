# SPDX-License-Identifier: Apache-2.0
"""What can be set of guards and policies; the Policy object of users exposes it.

Defaults are for queues of Jobs that train for hours. Times are seconds, shares are parts of one. `schemas.policy`
checks what users write; nothing is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["PLACE_S", "RESERVE_S", "AdaptiveSettings", "Down", "GuardSettings", "ThresholdSettings", "Up"]

PLACE_S = 30.0
"""How long surplus may wait for a node, seconds: some tens of the scheduler's cycles of 1 s."""
RESERVE_S = 120.0
"""How long GPUs are kept free for surplus that was asked for and has no node, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """What the guards around every policy go by."""

    cooldown_s: float = 0.0
    """Least time between two resizes of a Job, where its own cooldown is not longer."""
    resizes_per_hour: int | None = 12
    """Resizes of a Job that ended within an hour, after which only urgent ones may follow. None: any number."""
    benefit: float = 1.0
    """How many times the cost of a growth, in time, what it saves over the remaining work must exceed. 0: anything."""
    pause_s: float = 1.0
    """Pause of a resize where a Job has measured none: that of a worker who joins live. Optimistic, so that a Job is
    resized once and measures it."""
    settle_s: float = 600.0
    """How long a Job is not grown after a resize of it was rolled back."""
    place_s: float = PLACE_S
    """How long surplus may wait for a node before it is given up."""
    reserve_s: float = RESERVE_S
    """How long GPUs are kept free for surplus that was asked for and has no node; longer than `place_s`, for Jobs that
    may not give it up."""
    breaker_failures: int = 5
    """Failed resizes of a queue within `breaker_window_s` that stop all automatic ones, if they are more than succeeded
    in that time."""
    breaker_window_s: float = 600.0
    breaker_open_s: float = 300.0
    """How long automatic resizes are stopped, unless one succeeds (a person's) before."""
    stale_s: float = 60.0
    """How old what is known of the cluster may be before automatic resizes stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """When and how `threshold` grows Jobs."""

    idle_share: float = 0.5
    """Part of what the queue may use that must be idle, 0 to 1; a half, so that a queue does not fill up to the brim
    for every GPU that comes free."""
    pending_tasks: int | None = None
    """Pods of gangs that nothing can be given for, at most. None: any number; giving way comes when it helps."""
    step: int | None = None
    """How many of its sizes a Job grows at once. None: as many as fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Down:
    """When and how `threshold` shrinks Jobs beside what gangs are owed: by default never."""

    used_share: float | None = None
    """Part of what the queue may use that may not be in use, 0 to 1: at and above it Jobs shrink, and none grows up to
    it. None: a queue may be full."""
    pending_tasks: int | None = None
    """Pods of gangs that nothing can be given for, from which on Jobs shrink all the same, so that what comes free adds
    up for them. None: nothing is given in vain."""
    step: int = 1
    """How many of its sizes a Job shrinks at once, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdSettings:
    """What `threshold` goes by, per direction."""

    up: Up = field(default_factory=Up)
    down: Down = field(default_factory=Down)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSettings:
    """When `adaptive` switches between its two policies."""

    idle_share: float = 0.5
    """Part of what the queue may use that must be idle, with no gang waiting, for it to become aggressive."""
    idle_for_s: float = 60.0
    """For how long."""
    tight_share: float = 0.25
    """Part at and below which it becomes careful again; below `idle_share`, or it would switch back and forth."""
    tight_for_s: float = 10.0
    """For how long, too."""
    aggressive: str | None = None
    """The policy that decides while it is aggressive, with the settings of its own block. None: a `threshold` that
    grows while a tenth of the queue is idle."""
    careful: str | None = None
    """The policy that decides while it is careful. None: a `threshold` that grows a size at a time."""
