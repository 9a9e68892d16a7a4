# SPDX-License-Identifier: Apache-2.0
"""One trial of a search: a Job that is followed, and that goes at once when it is given up."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.contracts import progress_of, read
from kfp_volcano.errors import JobFailedError
from kfp_volcano.schemas.names import OWNER
from kfp_volcano.schemas.records import Owner
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.launcher.collect import gather
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.jobs import cancel
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.submit import submit
from kfp_volcano.volcano.manifests.status import job_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["News", "TrialJob", "cancel_trials", "run_id"]

STEP = "search"
"""The step that owns the Jobs of trials."""
_AT_ONCE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """How far a trial is, and how well it does."""

    percent: float = 0.0
    """Of its steps; 100 only once it has ended."""
    value: float | None = None
    """Of the metric; None before it was logged."""
    ended: bool = False


def run_id(search: str, trial: int, attempt: int) -> str:
    """What the Job of a trial belongs to: the same again takes it up."""
    return f"{search}-{trial}-{attempt}"


def cancel_trials(cluster: Cluster, namespace: str, search: str) -> int:
    """Delete the Jobs of a search that have not ended; how many there were."""
    cancelled = 0
    for job in cluster.list("Job", namespace)[0]:
        owner = read(Owner, annotation(job, OWNER))
        if owner and owner.step == STEP and owner.run_id.startswith(f"{search}-") and not job_state(job).final:
            cancel(cluster, job, patience_s=_AT_ONCE_S)
            cancelled += 1
    return cancelled


class TrialJob:
    """Creates the Job, or takes up the one that this trial had, and follows it in a thread of its own.

    Args:
        cluster: Where to.
        job: The training.
        run_id: The trial's own.
        metric: What it logs: `training.log(accuracy=...)`.
        folder: Where the command runs on the embedded cluster.
        say: Takes a line of the Job's log.
    """

    def __init__(
        self, cluster: Cluster, job: TrainingJob, *, run_id: str, metric: str, folder: str, say: Callable[[str], None]
    ) -> None:
        self._cluster, self._metric, self._say = cluster, metric, say
        self._began = time.time()
        self._job = submit(cluster, job, run_id=run_id, step=STEP, now=self._began, folder=folder)
        self._holder = f"{STEP}:{run_id}"
        self.ref = JobRef.of(self._job)
        self._news = News()
        self._error: Exception | None = None
        self._following = threading.Thread(target=self._follow, daemon=True)
        self._following.start()

    def wait(self, seconds: float) -> News:
        """How it stands when it has ended, or after so long.

        Raises:
            JobFailedError: The training failed, logged something that is no number, or ended without the metric.
            KfpVolcanoError: The Job is gone, or the cluster.
        """
        self._following.join(seconds)
        if self._error is not None:
            raise self._error
        if self._following.is_alive():
            self._look()
        else:
            self._news = News(percent=100.0, value=self._last(), ended=True)
        if self._news.value is not None and not math.isfinite(self._news.value):
            raise JobFailedError(f"its {self._metric} is no number any more: {self._news.value}")
        return self._news

    def stop(self) -> None:
        """Delete the Job, unless it has ended: its GPUs are free as soon as its pods have gone."""
        if self._following.is_alive():
            cancel(self._cluster, self._job, patience_s=_AT_ONCE_S)

    def _follow(self) -> None:
        try:
            follow(self._cluster, self.ref, holder=self._holder, heir="", last=True, clock=time.time, say=self._say)
        except Exception as error:  # noqa: BLE001 - told to whoever waits
            self._error = error

    def _look(self) -> None:
        progress = progress_of(self.ref.read(self._cluster))
        if progress is None:
            return
        percent = min(99.0, 100.0 * progress.step / max(1, progress.total_steps))
        self._news = News(percent=percent, value=progress.metrics.get(self._metric))

    def _last(self) -> float:
        """What it ended with: its ledgers know more than its last report, where they can be read here."""
        job = self.ref.read(self._cluster)
        result = gather(self._cluster, job, started_at=self._began, ended_at=time.time())
        logged = (result["metrics"] or {}).get(self._metric)
        if logged:
            return math.nan if logged[-1][1] is None else float(logged[-1][1])
        progress = progress_of(job)
        if progress is None or self._metric not in progress.metrics:
            raise JobFailedError(f"{self.ref} logged no {self._metric}: training.log({self._metric}=...)")
        return progress.metrics[self._metric]
