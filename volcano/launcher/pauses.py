# SPDX-License-Identifier: Apache-2.0
"""What a change of the number of workers cost the training: its pause, and the steps computed in vain.

Definitions, used wherever the project speaks of a pause:

- *step time*: the time between two consecutive committed steps. A step's commit time is the earliest commit line of
  its attempt, so a slow writer adds nothing. Where training went back to an earlier state between the two, it is the
  time since then: what it took back is the watch's doing, and no change of membership's.
- *window* of a resize: from the last step committed before its patch to `SETTLE_STEPS` steps after the change of
  membership it caused, and never into the next resize.
- *pause*: the longest step time within the window, less the median step time of the whole run; not below 0.
- *steps lost*: attempts within the window that are not among the steps the final weights come from, and that no
  rollback took back.
- *interruption*: a change of membership that no resize explains, such as a killed worker, or its return.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.schemas.records import ResizeOutcome

__all__ = ["SETTLE_STEPS", "Cost", "Interruption", "Trained", "interruptions", "median_step", "resize_costs"]

SETTLE_STEPS = 3
"""Steps after a change that still belong to it: newcomers' first steps are slow (caches, lazy initialisation)."""


class Trained(Protocol):
    """One committed step, as `elastic.ledger.audit` gives it; a sequence of them is in the order of training."""

    @property
    def time(self) -> float:
        """When it was first committed, Unix seconds."""

    @property
    def workers(self) -> int:
        """Workers that took part."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one change cost."""

    pause_s: float
    steps_lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A change of membership that nobody asked for."""

    time: float
    from_workers: int
    to_workers: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class _Window:
    """Indices of the first and last committed step of a window, and of the changes within it that it explains."""

    first: int
    last: int
    explained: tuple[int, ...]


def median_step(steps: Sequence[Trained]) -> float | None:
    """The median step time in seconds; None with fewer than two steps."""
    return median(later.time - earlier.time for earlier, later in pairwise(steps)) if len(steps) > 1 else None


def resize_costs(
    steps: Sequence[Trained],
    resizes: Sequence[ResizeOutcome],
    lost_at: Sequence[float],
    *,
    turned_at: Sequence[float] = (),
) -> list[Cost | None]:
    """What each resize cost, in the order given; None for one that changed nothing in the training.

    Args:
        steps: The committed steps in the order of training.
        resizes: The Job's resizes, oldest first.
        lost_at: Times of the attempts that were done in vain, Unix seconds.
        turned_at: Times at which training went back to an earlier state.
    """
    windows = _windows(steps, resizes)
    return [_cost(steps, window.first, window.last, lost_at, turned_at) if window else None for window in windows]


def interruptions(
    steps: Sequence[Trained],
    resizes: Sequence[ResizeOutcome],
    lost_at: Sequence[float],
    *,
    initial: int,
    turned_at: Sequence[float] = (),
) -> list[Interruption]:
    """The changes of membership that no resize explains, oldest first.

    The workers' first arrival, up to `initial` of them, is none.
    """
    changes = _changes(steps)
    explained = {index for window in _windows(steps, resizes) if window for index in window.explained}
    explained.update(_arrival(steps, changes, initial))
    found = []
    for position, index in enumerate(changes):
        if index in explained:
            continue
        end = changes[position + 1] - 1 if position + 1 < len(changes) else len(steps) - 1
        found.append(
            Interruption(
                time=steps[index].time,
                from_workers=steps[index - 1].workers,
                to_workers=steps[index].workers,
                cost=_cost(steps, index - 1, min(index + SETTLE_STEPS, end), lost_at, turned_at),
            )
        )
    return found


def _changes(steps: Sequence[Trained]) -> list[int]:
    return [index for index in range(1, len(steps)) if steps[index].workers != steps[index - 1].workers]


def _arrival(steps: Sequence[Trained], changes: Iterable[int], initial: int) -> list[int]:
    arrived = []
    for index in changes:
        if not steps[index - 1].workers < steps[index].workers <= initial:
            break
        arrived.append(index)
    return arrived


def _windows(steps: Sequence[Trained], resizes: Sequence[ResizeOutcome]) -> list[_Window | None]:
    times = [step.time for step in steps]
    patches = [_last_before(times, resize.patched_at) for resize in resizes if resize.patched_at is not None]
    spans = iter(zip(patches, [*patches[1:], len(steps) - 1], strict=False))
    return [None if resize.patched_at is None else _window(steps, times, resize, *next(spans)) for resize in resizes]


def _window(
    steps: Sequence[Trained], times: Sequence[float], resize: ResizeOutcome, first: int, limit: int
) -> _Window | None:
    """The window of a resize that was patched after step `first`; the next one was after step `limit`."""
    limit = max(first, limit)
    way = 1 if resize.to_workers > resize.from_workers else -1
    after = [i for i in range(first + 1, limit + 1) if (steps[i].workers - steps[i - 1].workers) * way > 0]
    reached = next((i for i in after if steps[i].workers == resize.to_workers), None)
    if reached is not None:
        return _Window(first, min(reached + SETTLE_STEPS, limit), tuple(i for i in after if i <= reached))
    # Reclaim takes the surplus of a Job before anybody patches it: then the change lies between request and patch.
    asked = _last_before(times, resize.requested_at)
    earlier = next(
        (i for i in range(first, asked, -1) if steps[i].workers == resize.to_workers != steps[i - 1].workers), None
    )
    change = earlier if earlier is not None else next(iter(after), None)
    if change is None:
        return None
    return _Window(min(first, change - 1), min(change + SETTLE_STEPS, limit), (change,))


def _last_before(times: Sequence[float], moment: float) -> int:
    return max(0, bisect_right(times, moment) - 1)


def _cost(
    steps: Sequence[Trained], first: int, last: int, lost_at: Iterable[float], turned_at: Sequence[float]
) -> Cost:
    usual = median_step(steps) or 0.0
    longest = max(
        later.time - max((earlier.time, *(turn for turn in turned_at if earlier.time < turn <= later.time)))
        for earlier, later in pairwise(steps[first : last + 1])
    )
    lost = sum(steps[first].time <= moment <= steps[last].time for moment in lost_at)
    return Cost(pause_s=round(max(0.0, longest - usual), 4), steps_lost=lost)
