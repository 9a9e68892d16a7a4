# SPDX-License-Identifier: Apache-2.0
"""The watch itself: what it sees at a step, and what has followed from it so far."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.monitoring.pace import Pace
from kfp_volcano.elastic.monitoring.skips import Skips
from kfp_volcano.elastic.monitoring.spikes import Spikes
from kfp_volcano.elastic.sharding import Cursor
from kfp_volcano.schemas.events import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.elastic.monitoring.pace import Slower
    from kfp_volcano.elastic.monitoring.spikes import Leap
    from kfp_volcano.schemas.monitor import Monitor, Spike, Then

__all__ = ["Measures", "Seen", "Watch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Something that the watch saw."""

    kind: Kind
    step: int
    """Where it began: counted before that step."""
    message: str
    then: Then
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def fine_until(self) -> int:
        """The last state, by its steps, that had no part in it: a high loss is that of the state before its step."""
        return self.step if self.kind is Kind.SLOW_DOWN else self.step - 1


@dataclass(slots=True, kw_only=True)
class Measures:
    """What was done about what was seen. A rollback does not take it back."""

    rollbacks: int = 0
    lr_factor: float = 1.0
    growth_stopped: str = ""
    """Why the autoscaler is to add no workers; empty where it may."""
    size: int | None = None
    """Workers that training had when it was fine, where it went back to that and had others since."""
    size_asked_at: float = 0.0
    """Unix seconds."""
    stopped: str = ""
    """Why training ends as failed; empty where it does not."""


class Watch:
    """Looks at each committed step; part of the shared state.

    Args:
        settings: the spec's `monitor`.
    """

    def __init__(self, settings: Monitor) -> None:
        self.settings = settings
        self.measures = Measures()
        self.skips = Skips()
        self._loss = _spikes(settings.loss)
        self._norm = _spikes(settings.gradient)
        slow = settings.slowdown
        self._pace = None if slow is None else Pace(ratio=slow.ratio, window=slow.window)
        steps = [each.steps for each in (settings.loss, settings.gradient) if each is not None]
        self._batches: deque[tuple[int, Cursor, int]] = deque(maxlen=max(steps, default=0) + 2)

    @property
    def wants_norm(self) -> bool:
        """Whether it looks at the gradient's length."""
        return self._norm is not None

    def observe(
        self, *, step: int, cursor: Cursor, count: int, samples: int, loss: float, norm: float | None, workers: int
    ) -> list[Seen]:
        """What a committed step shows, at the step that completes it.

        Args:
            step: committed before this one.
            cursor: before this one.
            count: samples of its batch.
            samples: committed with it.
            loss: the global batch's mean loss.
            norm: length of the gradient of the step before; None where that is not known.
            workers: that trained.
        """
        self._batches.append((step, cursor, count))
        return [
            *self._leaps(self._loss, self.settings.loss, Kind.LOSS_SPIKE, step, loss),
            *self._leaps(self._norm, self.settings.gradient, Kind.GRADIENT_SPIKE, step - 1, norm),
            *self._slower(step=step, samples=samples, loss=loss, workers=workers),
        ]

    def consequence(self, seen: Seen) -> Then:
        """What follows from it: as the spec says, but no more rollbacks than it allows."""
        over = self.measures.rollbacks >= self.settings.rollback.limit
        return "stop" if seen.then == "rollback" and over else seen.then

    @property
    def batches(self) -> tuple[tuple[int, Cursor, int], ...]:
        """The last batches: step, cursor before it, samples."""
        return tuple(self._batches)

    def skip(self, since: int, batches: Iterable[tuple[int, Cursor, int]]) -> int:
        """Passes over those `batches` that come from the one before step `since` on; how many these are."""
        pieces = [(cursor, count) for step, cursor, count in batches if step >= since - 1]
        for cursor, count in pieces:
            self.skips.add(cursor, count)
        return len(pieces)

    def lower(self) -> float:
        """The learning rate's next factor."""
        self.measures.lr_factor *= self.settings.lower_lr
        return self.measures.lr_factor

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "measures": asdict(self.measures),
            "skips": self.skips.state_dict(),
            "batches": [[step, cursor.epoch, cursor.position, count] for step, cursor, count in self._batches],
            **{name: part.state_dict() for name, part in self._detectors()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over another worker's state, or a checkpoint's."""
        self.measures = Measures(**state["measures"])
        self.skips.load_state_dict(state["skips"])
        self._batches.clear()
        self._batches.extend((step, Cursor(epoch, at), count) for step, epoch, at, count in state["batches"])
        for name, part in self._detectors():
            if name in state:  # the spec may watch more than it did
                part.load_state_dict(state[name])

    def _detectors(self) -> Iterator[tuple[str, Spikes | Pace]]:
        for name, part in (("loss", self._loss), ("norm", self._norm), ("pace", self._pace)):
            if part is not None:
                yield name, part

    def _leaps(
        self, spikes: Spikes | None, settings: Spike | None, kind: Kind, step: int, value: float | None
    ) -> Iterator[Seen]:
        if spikes is None or settings is None or value is None:
            return
        before = spikes.told
        leap = spikes.add(value)
        what = "the loss" if kind is Kind.LOSS_SPIKE else "the gradient's length"
        if leap is not None:
            yield _leapt(leap, kind, what, step, settings)
        elif before and not spikes.told:
            over = f"{what} is as it was: {value:.4g} at step {step}"
            yield Seen(kind=Kind.RECOVERED, step=step, message=over, then="alert", facts={"value": value})

    def _slower(self, *, step: int, samples: int, loss: float, workers: int) -> Iterator[Seen]:
        if self._pace is None or self.settings.slowdown is None:
            return
        slower = self._pace.add(step=step, samples=samples, loss=loss, workers=workers)
        if slower is not None:
            yield _slowed(slower, self.settings.slowdown.then)


def _spikes(settings: Spike | None) -> Spikes | None:
    if settings is None:
        return None
    return Spikes(factor=settings.spike, window=settings.window, steps=settings.steps)


def _leapt(leap: Leap, kind: Kind, what: str, step: int, settings: Spike) -> Seen:
    facts: dict[str, Any] = {"value": leap.value, "steps": leap.steps}
    known = not math.isnan(leap.usual)
    if known:
        facts |= {"usual": leap.usual, "limit": leap.limit}
    if not math.isfinite(leap.value):
        kind, message = Kind.NOT_FINITE, f"{what} of step {step} is {leap.value}"
        return Seen(kind=kind, step=step - leap.steps + 1, message=message, then=settings.then, facts=facts)
    row = f", the last of {leap.steps} in a row" if leap.steps > 1 else ""
    message = (
        f"{what} of step {step} is {leap.value:.4g}{row}: above {leap.limit:.4g}, "
        f"where {leap.usual:.4g} was usual in the {settings.window} steps before"
    )
    return Seen(kind=kind, step=step - leap.steps + 1, message=message, then=settings.then, facts=facts)


def _slowed(slower: Slower, then: Then) -> Seen:
    message = (
        f"since {slower.to_workers} workers train instead of {slower.from_workers} the loss falls by "
        f"{slower.after:.3g} in 1000 samples; before step {slower.step} it was {slower.before:.3g}"
    )
    return Seen(kind=Kind.SLOW_DOWN, step=slower.step, message=message, then=then, facts=asdict(slower))
