# SPDX-License-Identifier: Apache-2.0
"""An application by its profile: what a step takes, what a batch is worth, how long its training is. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.profiles.step_times import StepTimes

__all__ = ["GPUS_PER_NODE", "Application", "Gradients", "Split", "Validated", "packed"]

GPUS_PER_NODE = 4
"""Of the nodes that were profiled on."""
_HAIR = 1e-8


class Gradients(NamedTuple):
    """What gradients are like, at the smallest batch."""

    sqr: float
    """Squared norm of their mean."""
    var: float
    """Trace of their covariance."""

    def gain(self, scale: float) -> float:
        """Progress of a step with a batch so many times the smallest, in steps of that (Pollux, equation 5)."""
        return (self.var + self.sqr) / (self.var / scale + self.sqr)


class Split(NamedTuple):
    """A global batch as workers train it."""

    local: int
    """Samples of each at a time."""
    accumulated: int
    """Times before the last that gradients are summed without being sent."""

    def batch(self, gpus: int) -> int:
        """The global batch."""
        return gpus * self.local * (self.accumulated + 1)


@dataclass(frozen=True, slots=True)
class Validated:
    """A whole training with one batch: `validation-<batch>.csv`, a row for each epoch."""

    batch: int
    progress: tuple[float, ...]
    """At the end of each epoch, in steps of the smallest batch that would have led as far."""
    steps: tuple[float, ...]
    """At the end of each epoch."""
    gradients: tuple[Gradients, ...]


@dataclass(frozen=True)
class Application:
    """What was profiled of a model and its training."""

    name: str
    times: StepTimes
    validated: tuple[Validated, ...]
    """By batch, the smallest first."""
    epochs: int
    """After which its training is at its end."""
    most_local: int
    """Samples that a worker's memory has room for."""
    alone_batch: int | None = None
    """It trains on one GPU where it is free to choose, with this batch; None: on any number."""
    _gradients: dict[tuple[int, int], Gradients] = field(default_factory=dict, repr=False, compare=False)

    @property
    def base_batch(self) -> int:
        """The smallest, which others are compared with."""
        return self.validated[0].batch

    @property
    def most_batch(self) -> int:
        """The largest that converges."""
        return self.validated[-1].batch

    @property
    def least_local(self) -> int:
        """Samples of a worker, at least."""
        return self.times.least_local

    @property
    def most_gpus(self) -> int:
        """GPUs of which each has enough to do, where it is free to choose its batch."""
        return 1 if self.alone_batch is not None else self.most_batch // self.least_local

    @cached_property
    def milestones(self) -> tuple[float, ...]:
        """Progress at the end of each epoch: the least over all batches."""
        return tuple(min(each.progress[epoch] for each in self.validated) for epoch in range(self.epochs))

    def gradients(self, batch: int, epoch: int) -> Gradients:
        """What they are like in an epoch, counted from 0, with a batch; between the two next to it."""
        found = self._gradients.get((batch, epoch))
        if found is None:
            low, high = self._around(batch)
            first, second = low.gradients[epoch], high.gradients[epoch]
            found = first if low is high else Gradients(*_between(batch, low, first, high, second))
            self._gradients[batch, epoch] = found
        return found

    def steps(self, batch: int, epoch: int) -> float:
        """Steps with a batch up to the end of an epoch, counted from 0."""
        low, high = self._around(batch)
        if low is high:
            return low.steps[epoch]
        return _between(batch, low, (low.steps[epoch],), high, (high.steps[epoch],))[0]

    def _around(self, batch: int) -> tuple[Validated, Validated]:
        """The training with the largest batch that is no larger, and with the smallest that is no smaller."""
        low = [each for each in self.validated if each.batch <= batch]
        high = [each for each in self.validated if each.batch >= batch]
        if not low or not high:
            what = f"a batch of {batch} is not between {self.base_batch} and {self.most_batch}, which were validated"
            raise SpecError(what, source=f"application {self.name}")
        return low[-1], high[0]

    def split(self, batch: int, gpus: int) -> Split:
        """How so many workers share a global batch; alone, they accumulate to see the noise of their gradients."""
        local = math.ceil(batch / gpus - _HAIR)
        accumulated = math.ceil(local / self.most_local - _HAIR) - 1
        if gpus == 1 and batch > self.base_batch:
            accumulated = max(1, accumulated)
        return self.bounded(Split(math.ceil(local / (accumulated + 1) - _HAIR), accumulated), gpus)

    def bounded(self, split: Split, gpus: int) -> Split:
        """The same within the largest batch."""
        most = int(self.most_batch / (gpus * (split.accumulated + 1)))
        return Split(min(split.local, most), split.accumulated)


def packed(gpus: int) -> tuple[int, ...]:
    """So many GPUs on as few nodes as they go."""
    whole, rest = divmod(gpus, GPUS_PER_NODE)
    return (GPUS_PER_NODE,) * whole + ((rest,) if rest else ())


def _between(
    batch: int, low: Validated, first: tuple[float, ...], high: Validated, second: tuple[float, ...]
) -> tuple[float, ...]:
    """Linear in the batch."""
    width = high.batch - low.batch
    return tuple(
        ((batch - low.batch) * after + (high.batch - batch) * before) / width
        for before, after in zip(first, second, strict=True)
    )
