# SPDX-License-Identifier: Apache-2.0
"""Order among Jobs: raises or lowers a Job's priority class within a stated range, beside any policy of sizes. Pure.

A Job starts from its *base*: the class of its spec, or the one that a person gave it since. It rises by a class for
each `waiting` that it has waited, by one while it is almost done (what would be lost is worth more than what is left),
and by one while it trains far below what it has reached before; it sinks by one while it stands still. All of that
within `up` and `down` classes of its base, so that order follows importance; and because waiting raises it, nothing
starves: after `up` times `waiting` it is at the top of its range, where Volcano serves the oldest first.

What no longer holds is taken back after `settle` only, and never while the Job waits: a gang that rose to be let in
would otherwise be the next to be taken from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot, Ranked

__all__ = ["PrioritySettings", "RankChange", "RankReason", "reranked"]


class RankReason(str, Enum):
    """Why a Job's class is changed, in one word."""

    WAITED_LONG = "WaitedLong"
    """Rises: it has waited for its gang longer than it should."""
    ALMOST_DONE = "AlmostDone"
    """Rises: little is left of its training."""
    FELL_BEHIND = "FellBehind"
    """Rises: it trains far below the speed that it had before."""
    STANDS_STILL = "StandsStill"
    """Sinks: it holds its pods and reports no progress."""
    RESTORED = "Restored"
    """Returns towards its base: what it was moved for is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrioritySettings:
    """How classes are changed; block `priorities` of a Policy."""

    classes: tuple[str, ...]
    """PriorityClasses among which Jobs move, lowest first; a Job whose base is none of them is left alone."""
    up: int = 1
    """How many classes above its base a Job may rise."""
    down: int = 1
    """How many classes below its base a Job may sink; one with surplus stays above the class of that."""
    waiting_s: float = 1800.0
    """How long a Job waits before it rises by a class, and again before the next."""
    almost_done: float | None = 0.9
    """Share of its steps after which a Job rises; None: never."""
    behind: float | None = 0.5
    """Share of the best speed it had below which a Job is behind; None: never."""
    behind_s: float = field(default=900.0, metadata={"key": "behindFor"})
    """How long it has had its present size before that counts."""
    still_s: float | None = 900.0
    """How long a Job that has reported progress may report none before it sinks; None: for ever."""
    settle_s: float = 600.0
    """Least time between two changes of a Job that does not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChange:
    """Another class for a Job, and why."""

    job: str
    """namespace/name."""
    from_class: str
    to_class: str
    reason: RankReason
    explanation: str
    """One sentence for people, with the numbers it rests on."""
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cause:
    """What moves a Job away from its base."""

    by: int
    """Classes; negative: down."""
    reason: RankReason
    why: str
    numbers: Mapping[str, float]


def reranked(snapshot: QueueSnapshot, settings: PrioritySettings) -> tuple[RankChange, ...]:
    """The changes that are due, sorted by Job; none for what is right as it is."""
    found = (_change(job, snapshot, settings) for job in sorted(snapshot.ranked, key=lambda job: job.key))
    return tuple(change for change in found if change is not None)


def _change(job: Ranked, snapshot: QueueSnapshot, settings: PrioritySettings) -> RankChange | None:
    classes = settings.classes
    if job.base_class not in classes or job.priority_class not in classes:
        return None
    base, present = classes.index(job.base_class), classes.index(job.priority_class)
    causes = tuple(_causes(job, snapshot.at, settings))
    lowest, highest = max(0, base - settings.down), min(len(classes) - 1, base + settings.up)
    aim = min(max(base + sum(cause.by for cause in causes), lowest), highest)
    aim = next((rank for rank in range(aim, highest + 1) if _allowed(classes[rank], job, snapshot)), present)
    settled = job.ranked_at is None or job.ranked_at + settings.settle_s <= snapshot.at
    if aim == present or (aim < present and job.waiting_since is not None):
        return None
    if not settled and not (aim > present and job.waiting_since is not None):
        return None
    name, to = job.key.rpartition("/")[2], classes[aim]
    towards = [cause for cause in causes if (cause.by > 0) == (aim > present)]
    move = f"{name} {'rises' if aim > present else 'sinks'} from {job.priority_class} to {to}"
    if not towards:
        why = f"what {name} was moved for is over"
        return RankChange(
            job=job.key,
            from_class=job.priority_class,
            to_class=to,
            reason=RankReason.RESTORED,
            explanation=f"{why}: it goes back from {job.priority_class} to {to}",
        )
    return RankChange(
        job=job.key,
        from_class=job.priority_class,
        to_class=to,
        reason=towards[0].reason,
        explanation=f"{' and '.join(cause.why for cause in towards)}: {move}",
        numbers={key: value for cause in towards for key, value in cause.numbers.items()},
    )


def _allowed(to: str, job: Ranked, snapshot: QueueSnapshot) -> bool:
    """Whether the class is there, and keeps the Job's gang above its surplus, whose class cannot change."""
    value = snapshot.priorities.get(to)
    return value is not None and (job.surplus_priority is None or value > job.surplus_priority)


def _causes(job: Ranked, at: float, settings: PrioritySettings) -> Iterator[_Cause]:
    name = job.key.rpartition("/")[2]
    if job.waiting_since is not None:
        waited = at - job.waiting_since
        times = int(waited // settings.waiting_s)
        if times > 0:
            why = f"{name} has waited for {_time(waited)}"
            yield _Cause(times, RankReason.WAITED_LONG, why, {"waited_s": waited})
        return
    if settings.almost_done is not None and job.done is not None and job.done >= settings.almost_done:
        yield _Cause(1, RankReason.ALMOST_DONE, f"{name} is {job.done:.0%} done", {"done": job.done})
    if job.progressed_at is None:
        return
    silent = at - job.progressed_at
    if settings.still_s is not None and silent >= settings.still_s:
        why = f"{name} has reported no progress for {_time(silent)}"
        yield _Cause(-1, RankReason.STANDS_STILL, why, {"silent_s": silent})
    elif _is_behind(job, at, settings):
        speed, best = job.throughput or 0.0, job.best_throughput or 0.0
        why = f"{name} trains {speed:.1f} samples/s and had {best:.1f} before"
        yield _Cause(1, RankReason.FELL_BEHIND, why, {"throughput": speed, "best_throughput": best})


def _is_behind(job: Ranked, at: float, settings: PrioritySettings) -> bool:
    if settings.behind is None or job.throughput is None or job.best_throughput is None or job.sized_at is None:
        return False
    return at - job.sized_at >= settings.behind_s and job.throughput < settings.behind * job.best_throughput


def _time(seconds: float) -> str:
    """In whole minutes, in hours where it is many."""
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"  # noqa: PLR2004 - two hours
