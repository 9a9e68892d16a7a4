# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's own Prometheus metrics: a Recorder that counts.

Each actor counts for the queues that it leads; the supervisor serves what all of them have counted at one address
(`exposition`), told apart by the label `actor`.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kfp_volcano.schemas.records import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prometheus_client.metrics import MetricWrapperBase

    from kfp_volcano.elastic.autoscaler.telling.recorder import JobEnd
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.errors import SpecError
    from kfp_volcano.schemas.records import ClassChange, ResizeOutcome

__all__ = ["PREFIX", "Telemetry"]

PREFIX = "kfp_volcano_autoscaler"
"""All names begin with it."""

_LAGS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_REQUESTS_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)


class Telemetry:
    """Counts what an autoscaler does, by queue.

    Args:
        registry: Where the metrics are kept.
        clock: Unix seconds.
    """

    def __init__(self, registry: CollectorRegistry, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wrong = Gauge(
            f"{PREFIX}_policies_wrong", "1 while the files of Policies hold an error.", registry=registry
        )
        self._by_queue: list[MetricWrapperBase] = []

        def counter(name: str, what: str, *labels: str) -> Counter:
            made = Counter(f"{PREFIX}_{name}", what, ["queue", *labels], registry=registry)
            self._by_queue.append(made)
            return made

        def gauge(name: str, what: str) -> Gauge:
            made = Gauge(f"{PREFIX}_{name}", what, ["queue"], registry=registry)
            self._by_queue.append(made)
            return made

        def histogram(name: str, what: str, buckets: Sequence[float]) -> Histogram:
            made = Histogram(f"{PREFIX}_{name}", what, ["queue"], buckets=buckets, registry=registry)
            self._by_queue.append(made)
            return made

        self._decisions = counter(
            "decisions_total", "Decisions about a Job, those to leave it as it is included.", "policy", "reason"
        )
        self._requests = counter("requests_total", "Resizes asked for.", "policy", "reason")
        self._resizes = counter("resizes_total", "Resizes that have ended, by how.", "outcome", "reason")
        self._class_changes = counter("class_changes_total", "Jobs that were given another priority class.", "reason")
        self._failures = counter("failures_total", "Turns that came to nothing, by the error's class.", "error")
        self._lag = histogram(
            "lag_seconds", "From a change in the cluster to the end of the turn that it gave reason for.", _LAGS_S
        )
        self._turn = histogram("turn_seconds", "How long turns take that end in decisions.", _LAGS_S)
        self._done = histogram(
            "request_to_done_seconds", "From a request to the end of its resize, of those that were done.", _REQUESTS_S
        )
        self._pause = histogram("pause_seconds", "How long a resize kept its training from stepping.", _PAUSES_S)
        self._limit = gauge("queue_limit_gpus", "GPUs that the queue may use at most.")
        self._deserved = gauge("queue_deserved_gpus", "GPUs that the queue has a right to.")
        self._allocated = gauge("queue_allocated_gpus", "GPUs that the queue's pods hold.")
        self._free = gauge("queue_free_gpus", "GPUs that the queue could still take.")
        self._pending_gangs = gauge("queue_pending_gangs", "Gangs of the queue that wait for GPUs.")
        self._pending_gpus = gauge("queue_pending_gpus", "GPUs that those gangs lack.")
        self._waited = gauge("queue_longest_wait_seconds", "How long the first of those gangs has waited.")
        self._jobs = gauge("queue_elastic_jobs", "Elastic Jobs of the queue that run.")
        self._held = gauge("queue_held_jobs", "Elastic Jobs that a person has put on hold.")
        self._stale = gauge("queue_stale_seconds", "How long the cluster has not been seen.")
        self._breaker = gauge("queue_breaker_open", "1 while automatic resizes of the queue are stopped.")
        self._leading = gauge("queue_leading", "1 while this autoscaler leads the queue, 0 while it stands by.")

    def decided(
        self, snapshot: QueueSnapshot, decisions: Sequence[Decision], requests: Mapping[str, str], *, lag_s: float
    ) -> None:
        """See `Recorder.decided`."""
        queue = snapshot.queue
        for (policy, reason), count in Tally((each.policy, each.reason.value) for each in decisions).items():
            self._decisions.labels(queue, policy, reason).inc(count)
        for each in decisions:
            if each.job in requests:
                self._requests.labels(queue, each.policy, each.reason.value).inc()
        self._lag.labels(queue).observe(lag_s)
        self._turn.labels(queue).observe(max(0.0, self._clock() - snapshot.at))
        self._limit.labels(queue).set(snapshot.limit_gpus)
        self._deserved.labels(queue).set(snapshot.share_gpus)
        self._allocated.labels(queue).set(snapshot.allocated_gpus)
        self._free.labels(queue).set(snapshot.free_gpus)
        self._pending_gangs.labels(queue).set(len(snapshot.pending))
        self._pending_gpus.labels(queue).set(sum(gang.gpus for gang in snapshot.pending))
        oldest = min((gang.since for gang in snapshot.pending), default=snapshot.at)
        self._waited.labels(queue).set(max(0.0, snapshot.at - oldest))
        self._jobs.labels(queue).set(len(snapshot.jobs))
        held = sum(job.hold is not None and job.hold.until > snapshot.at for job in snapshot.jobs)
        self._held.labels(queue).set(held)
        self._stale.labels(queue).set(snapshot.stale_s)
        open_until = snapshot.memory.breaker.open_until
        self._breaker.labels(queue).set(open_until is not None and snapshot.at < open_until)

    def resized(self, queue: str, job: str, outcome: ResizeOutcome) -> None:  # noqa: ARG002 - a series a Job were too many
        """See `Recorder.resized`."""
        self._resizes.labels(queue, outcome.phase.value, outcome.reason).inc()
        if outcome.phase is Phase.DONE and outcome.done_at is not None:
            self._done.labels(queue).observe(max(0.0, outcome.done_at - outcome.requested_at))
        if outcome.pause_s is not None:
            self._pause.labels(queue).observe(outcome.pause_s)

    def reranked(self, queue: str, job: str, change: ClassChange) -> None:  # noqa: ARG002 - as above
        """See `Recorder.reranked`."""
        self._class_changes.labels(queue, change.reason).inc()

    def ended(self, queue: str, end: JobEnd) -> None:
        """See `Recorder.ended`: of the decision log alone."""

    def failed(self, queue: str, error: Exception) -> None:
        """See `Recorder.failed`."""
        self._failures.labels(queue, type(error).__name__).inc()

    def policies(self, error: SpecError | None) -> None:
        """The files of Policies have been read: those in force are theirs, or the last ones without an error."""
        self._wrong.set(error is not None)

    def leads(self, queue: str, *, leading: bool) -> None:
        """Who leads a queue has been found out. What only a leader knows is not told on by one that stands by."""
        self._leading.labels(queue).set(leading)
        if not leading:
            for gauge in self._by_queue:
                if isinstance(gauge, Gauge) and gauge is not self._leading:
                    gauge.remove_by_labels({"queue": queue})

    def forget(self, queue: str) -> None:
        """A queue is led here no more: its series end."""
        for metric in self._by_queue:
            metric.remove_by_labels({"queue": queue})

    @property
    def metrics(self) -> Sequence[MetricWrapperBase]:
        """All of them."""
        return (*self._by_queue, self._wrong)
