# SPDX-License-Identifier: Apache-2.0
"""A job on its way through a simulation: what it holds, how far it has come, and what it has paid for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.outcome import JobOutcome, Span
from kfp_volcano.elastic.simulator.work import Placement

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.allocators.allocator import Spots
    from kfp_volcano.elastic.simulator.scenario import Job
    from kfp_volcano.elastic.simulator.work import Training

__all__ = ["Course"]

_NOTHING = Placement()


class Course:
    """One job's; its own clock stands at the last time it was looked at.

    Args:
        job: Whose.
        training: Its training, at its start.
    """

    __slots__ = (
        "_at",
        "_begun_at",
        "_lost_s",
        "_owed_s",
        "_placement",
        "_served_gpu_s",
        "_spans",
        "ended_at",
        "job",
        "resizes",
        "restarts",
        "spots",
        "started_at",
        "training",
    )

    def __init__(self, job: Job, training: Training) -> None:
        self.job = job
        self.training = training
        self.spots: Spots = ()
        """(node, GPUs) that it holds."""
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.resizes = 0
        self.restarts = 0
        self._placement = _NOTHING
        self._at = self._begun_at = job.submitted_at
        self._owed_s = 0.0
        """Seconds that it has yet to hold its GPUs for without training."""
        self._lost_s = 0.0
        """Such seconds of the present span."""
        self._served_gpu_s = 0.0
        self._spans: list[Span] = []

    @property
    def served_gpu_s(self) -> float:
        """GPU-seconds it has held until it was last looked at."""
        return self._served_gpu_s

    def advance(self, at: float) -> None:
        """Go on until then, or to its end."""
        if self.ended_at is not None:
            return
        if self.spots:
            before = self._at
            owed = min(self._owed_s, at - before)
            self._owed_s -= owed
            self._lost_s += owed
            begun = before + owed
            if begun < at:
                took = self.training.advance(self._placement, at - begun)
                if self.training.done >= 1:
                    at = self.ended_at = begun + took
            self._served_gpu_s += (at - before) * self._placement.total
        self._at = at
        if self.ended_at is not None:
            self._close()

    def ends_at(self) -> float:
        """When it will be at its end if nothing changes; infinity where it will not."""
        if not self.spots:
            return math.inf
        return self._at + self._owed_s + self.training.left(self._placement)

    def left_s(self) -> float:
        """How long it would train on where it is; infinity where it cannot."""
        return self.training.left(self._placement) if self.spots else math.inf

    def pause(self, seconds: float) -> None:
        """Hold on to its GPUs for so long without training."""
        self._owed_s = seconds

    def hold(self, spots: Spots, placement: Placement, cost_s: float) -> None:
        """Have these GPUs from now on; for so long it does not train at first."""
        self._close()
        self.spots, self._placement = spots, placement
        if spots:
            self._owed_s = cost_s
            if self.started_at is None:
                self.started_at = self._at

    def outcome(self) -> JobOutcome:
        """What became of it until it was last looked at."""
        job, asked = self.job, self.job.workers * self.job.gpus_per_worker
        self._close()
        return JobOutcome(
            name=job.name,
            team=job.team or job.queue,
            queue=job.queue,
            submitted_at=job.submitted_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            spans=tuple(self._spans),
            asked_gpus=asked,
            alone_s=job.work.alone_s(asked),
            resizes=self.resizes,
            restarts=self.restarts,
            done=self.training.done,
        )

    def _close(self) -> None:
        """End the present span."""
        if self.spots and self._at > self._begun_at:
            nodes = tuple(node for node, _ in self.spots)
            span = Span(
                begin=self._begun_at, end=self._at, gpus=self._placement.total, nodes=nodes, lost_s=self._lost_s
            )
            self._spans.append(span)
        self._begun_at, self._lost_s = self._at, 0.0
