# SPDX-License-Identifier: Apache-2.0
"""Work of which only the duration is known: a job of a trace, and what is assumed of it at other sizes.

Speeds are relative to the speed on the GPUs that the trace saw: twice the speed, half the time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.schemas.records import Measured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.simulator.work import Placement

__all__ = ["Scaling", "Traced"]

_AT_ITS_END = 1e-9
"""Seconds on its own GPUs that count as nothing: rounding must not leave a job a billionth of its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How speed follows size: Amdahl's law, or points that were measured."""

    serial: float = 0.0
    """Part of a step on one GPU that more GPUs do not shorten (Amdahl 1967); 0: twice the GPUs are twice as fast."""
    points: tuple[tuple[int, float], ...] = ()
    """(GPUs, speed) ascending, of any unit; straight between them, in proportion below the first, flat above the
    last. Where there are some, `serial` says nothing."""
    spread: float = 1.0
    """What is left of the speed on more nodes than it takes."""
    classes: Mapping[str, float] = field(default_factory=dict)
    """How fast a GPU class is; 1 where it is not named. The slowest GPU sets the pace."""

    def speed(self, gpus: int) -> float:
        """At so many GPUs, in its own unit."""
        if gpus <= 0:
            return 0.0
        if not self.points:
            return gpus / (1.0 + self.serial * (gpus - 1))
        index = bisect_right(self.points, (gpus, math.inf))
        if index == 0:
            first, speed = self.points[0]
            return speed * gpus / first
        (low, at_low) = self.points[index - 1]
        if index == len(self.points):
            return at_low
        (high, at_high) = self.points[index]
        return at_low + (at_high - at_low) * (gpus - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What a job has to do: so long on so many GPUs."""

    duration_s: float
    gpus: int
    scaling: Scaling = Scaling()
    gpus_per_worker: int = 1
    batch: int = 1
    """Global batch, which it keeps at every size; what is measured is told in samples of it."""
    node_gpus: int = 8
    """GPUs of a node: more nodes than these GPUs take are a spread placement."""
    done: float = 0.0
    """Part that is done before the scenario begins."""

    def begin(self, *, adaptive: bool = False) -> TracedTraining:  # noqa: ARG002 - it knows no batch but its own
        """The training at its start."""
        return TracedTraining(self)

    def alone_s(self, gpus: int) -> float:
        """Seconds it would take from start to end on so many GPUs, packed as tightly as they go, for itself."""
        speed = self._relative(gpus)
        return self.duration_s / speed if speed else math.inf

    def speed(self, placement: Placement) -> float:
        """At a placement, relative to that on the GPUs of the trace."""
        speed = self._relative(placement.total)
        if len(placement.gpus) > -(-placement.total // self.node_gpus):
            speed *= self.scaling.spread
        if placement.classes and self.scaling.classes:
            speed *= min(self.scaling.classes.get(each, 1.0) for each in placement.classes)
        return speed

    def _relative(self, gpus: int) -> float:
        own = self.scaling.speed(self.gpus)
        return self.scaling.speed(gpus) / own if own else 0.0


class TracedTraining:
    """A traced job under way."""

    __slots__ = ("_left_s", "_measured", "_speed", "_work")

    def __init__(self, work: Traced) -> None:
        self._work = work
        self._left_s = work.duration_s * (1.0 - work.done)
        """On the GPUs of the trace."""
        self._speed: float | None = None
        self._measured: dict[tuple[int, int, str], Measured] = {}

    @property
    def done(self) -> float:
        """Part of its work that is done."""
        return 1.0 - self._left_s / self._work.duration_s if self._left_s > 0 else 1.0

    @property
    def batch(self) -> int | None:
        """Global batch."""
        return self._work.batch

    @property
    def noise_scale(self) -> float | None:
        """No trace tells it."""
        return None

    @property
    def measured(self) -> tuple[Measured, ...]:
        """How fast it was where it has been: batches per second on the trace's GPUs are one a second."""
        return tuple(self._measured.values())

    @property
    def batch_range(self) -> None:
        """It keeps the batch that it has."""
        return None

    @property
    def pace(self) -> float | None:
        """Part of its work that it does in a second, as it last trained; None before it has."""
        return None if self._speed is None else self._speed / self._work.duration_s

    def advance(self, placement: Placement, seconds: float) -> float:
        """Train there for at most so long; the seconds that it took."""
        speed = self._work.speed(placement)
        if speed <= 0:
            return seconds
        self._speed = speed
        self._note(placement, speed)
        needed = self._left_s / speed
        if needed <= seconds + _AT_ITS_END:
            self._left_s = 0.0
            return min(needed, seconds)
        self._left_s -= seconds * speed
        return seconds

    def left(self, placement: Placement) -> float:
        """Seconds to its end if it trains on there."""
        speed = self._work.speed(placement)
        return self._left_s / speed if speed > 0 else math.inf

    def _note(self, placement: Placement, speed: float) -> None:
        workers = placement.total // self._work.gpus_per_worker
        gpu_class = placement.classes[0] if len(set(placement.classes)) == 1 else ""
        key = (workers, len(placement.gpus), gpu_class)
        if key not in self._measured:
            batch = self._work.batch
            self._measured[key] = Measured(
                workers=workers, throughput=speed * batch, batch=batch, nodes=len(placement.gpus), gpu_class=gpu_class
            )
