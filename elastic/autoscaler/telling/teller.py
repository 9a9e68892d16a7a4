# SPDX-License-Identifier: Apache-2.0
"""Tells recorders what happens in the queues that are led; that one of them fails stops nobody from scaling."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.telling.recorder import JobEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts
    from kfp_volcano.elastic.autoscaler.telling.recorder import Recorder
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.schemas.records import ClassChange, ResizeOutcome

__all__ = ["Teller", "Told"]


class Told:
    """What was told of a queue's elastic Jobs, so that each thing is told once."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        """The id of the last resize that ended, by Job; empty where there was none."""
        self.over: set[str] = set()
        """Jobs that have ended."""


class Teller:
    """Tells all recorders."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self._recorders = recorders

    def decided(
        self, snapshot: QueueSnapshot, decisions: Sequence[Decision], requests: Mapping[str, str], lag_s: float
    ) -> None:
        """See `Recorder.decided`."""
        self._each(lambda recorder: recorder.decided(snapshot, decisions, requests, lag_s=lag_s))

    def reranked(self, queue: str, job: str, change: ClassChange) -> None:
        """See `Recorder.reranked`."""
        self._each(lambda recorder: recorder.reranked(queue, job, change))

    def failed(self, queue: str, error: Exception) -> None:
        """See `Recorder.failed`."""
        self._each(lambda recorder: recorder.failed(queue, error))

    def ends(self, queue: str, jobs: Collection[JobFacts], told: Told, now: float) -> None:
        """Tell of resizes and Jobs that have ended since this was called last; nothing of Jobs that are new to it."""
        for job in jobs:
            if job.range is None:
                continue
            last = job.history.last_ended
            before = told.outcomes.get(job.key)
            told.outcomes[job.key] = last.id if last else ""
            if last is not None and before not in {None, last.id}:
                self._resized(queue, job.key, last)
            if job.state.final and before is not None and job.key not in told.over:
                self._ended(queue, _end_of(job, now))
            if job.state.final:
                told.over.add(job.key)
        if len(told.outcomes) > 2 * len(jobs):
            present = {job.key for job in jobs}
            told.outcomes = {key: last for key, last in told.outcomes.items() if key in present}
            told.over &= present

    def _resized(self, queue: str, job: str, outcome: ResizeOutcome) -> None:
        self._each(lambda recorder: recorder.resized(queue, job, outcome))

    def _ended(self, queue: str, end: JobEnd) -> None:
        self._each(lambda recorder: recorder.ended(queue, end))

    def _each(self, tell: Callable[[Recorder], None]) -> None:
        for recorder in self._recorders:
            _safely(recorder, tell)


_log = logging.getLogger(__name__)


def _end_of(job: JobFacts, now: float) -> JobEnd:
    pace = job.pace
    return JobEnd(
        job=job.key,
        state=job.state.value,
        created_at=job.created,
        ended_at=now,
        loss=pace.loss if pace else None,
        done=pace.done if pace else None,
    )


def _safely(recorder: Recorder, tell: Callable[[Recorder], None]) -> None:
    try:
        tell(recorder)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("%s failed", type(recorder).__name__)
