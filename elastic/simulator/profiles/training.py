# SPDX-License-Identifier: Apache-2.0
"""A training by its profile, second by second as the simulator of Pollux counts it. Pure.

`advance` is `Job.step` of that simulator: an epoch's last part is rounded to whole seconds, and the batch is chosen
anew with each epoch and each call.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.profiles.batches import Agent
from kfp_volcano.schemas.records import BatchRange, Measured

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.profiles.application import Application, Gradients, Split
    from kfp_volcano.elastic.simulator.work import Placement

__all__ = ["ProfiledTraining"]

_HAIR_S = 1e-6
_AHEAD_S = 300.0


class ProfiledTraining:
    """Under way."""

    def __init__(self, application: Application, batch: int | None) -> None:
        """Begin.

        Args:
            application: What it trains.
            batch: Its global batch; None: it chooses.
        """
        self.application = application
        self.agent = None if batch is not None else Agent(application)
        """What chooses its batch; None where that was given."""
        self.target = batch
        self.epoch = 0
        """The present one, counted from 0."""
        self._progress = 0.0
        self._batch: int | None = None
        self._gradients: Gradients | None = None
        self._pace: float | None = None
        self._cut_s = 0.0
        """By how much the end of its last epoch was rounded down."""
        self._measured: dict[tuple[int, int], Measured] = {}

    @property
    def done(self) -> float:
        """Part of its progress that is made, 0 to 1."""
        return 1.0 if self.ended else self._progress / self.application.milestones[-1]

    @property
    def ended(self) -> bool:
        """Whether it has had its last epoch."""
        return self.epoch >= self.application.epochs

    @property
    def batch(self) -> int | None:
        """Its global batch where it last trained."""
        return self._batch

    @property
    def noise_scale(self) -> float | None:
        """Of its gradients when it last trained, samples."""
        if self._gradients is None:
            return None
        return self._gradients.var / self._gradients.sqr * self.application.base_batch

    @property
    def measured(self) -> tuple[Measured, ...]:
        """How fast it was, by the number of workers and nodes, with the last batch there; a worker has one GPU."""
        return tuple(self._measured.values())

    @property
    def batch_range(self) -> BatchRange | None:
        """What it chooses its batch from by itself; None where that was given."""
        if self.agent is None:
            return None
        application = self.application
        return BatchRange(least=application.base_batch, most=application.most_batch, least_each=application.least_local)

    @property
    def pace(self) -> float | None:
        """Part of its progress that it made in a second, as it last trained; None before it has."""
        return self._pace

    def advance(self, placement: Placement, seconds: float) -> float:
        """Train there for at most so long: the seconds until its end where that is within them, else `seconds`."""
        gpus, spent = placement.gpus, 0.0
        if not gpus:
            return seconds
        while spent < seconds and not self.ended:
            goodput = self._goodput(gpus)
            milestone = self.application.milestones[self.epoch]
            if self._progress + goodput * (seconds - spent) < milestone:
                self._progress += goodput * (seconds - spent)
                return seconds
            took = (milestone - self._progress) / goodput
            spent = min(seconds, spent + round(took))
            self._cut_s = max(0.0, took - round(took)) if self.epoch == self.application.epochs - 1 else 0.0
            self._progress = milestone
            self.epoch += 1
        return spent

    def left(self, placement: Placement) -> float:
        """Seconds to its end if it trains on there; infinity where it cannot.

        Of a training that chooses its batch no more than `_AHEAD_S` are looked ahead, for each epoch is a choice: it is
        to be asked again then.
        """
        if not placement.gpus:
            return math.inf
        ahead = copy.copy(self)
        ahead.agent, ahead._measured = copy.copy(self.agent), {}  # noqa: SLF001 - of its own kind
        # An end that is rounded down to is reached all the same only once it has been trained to.
        left = ahead.advance(placement, math.inf if self.agent is None else _AHEAD_S)
        return left + ahead._cut_s + _HAIR_S  # noqa: SLF001

    def _goodput(self, gpus: tuple[int, ...]) -> float:
        """Progress a second there, in steps of the smallest batch; what it is seen to be is taken up."""
        application, nodes, total = self.application, len(gpus), sum(gpus)
        split = self._split(nodes, total)
        batch = split.batch(total)
        step = application.times.at(gpus, split.local)
        seconds = step.step_s + step.compute_s * split.accumulated
        gradients = application.gradients(batch, self.epoch)
        if self.agent is not None:
            self.agent.learn(nodes, total, split.local, step, gradients)
        self._batch, self._gradients = batch, gradients
        before = self._measured.get((nodes, total))
        if before is None or before.batch != batch:
            self._measured[nodes, total] = Measured(
                workers=total,
                throughput=batch / seconds,
                batch=batch,
                nodes=nodes,
                compute_s=step.compute_s * (split.accumulated + 1),
            )
        goodput = gradients.gain(batch / application.base_batch) / seconds
        self._pace = goodput / application.milestones[-1]
        return goodput

    def _split(self, nodes: int, gpus: int) -> Split:
        if self.agent is not None:
            return self.agent.split(nodes, gpus)
        return self.application.split(self.target or self.application.base_batch, gpus)
