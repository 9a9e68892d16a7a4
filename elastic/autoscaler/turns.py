# SPDX-License-Identifier: Apache-2.0
"""A turn of a queue that is led: observe, decide, ask, execute, keep."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from kfp_volcano.elastic.autoscaler.telling.teller import Told
from kfp_volcano.elastic.policies.memory import Memory
from kfp_volcano.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kfp_volcano.elastic.autoscaler.executor import Executor
    from kfp_volcano.elastic.autoscaler.keeping import Keeper
    from kfp_volcano.elastic.autoscaler.observing.view import View
    from kfp_volcano.elastic.autoscaler.telling.queue_log import QueueLog
    from kfp_volcano.elastic.autoscaler.telling.teller import Teller
    from kfp_volcano.elastic.autoscaler.tending import Tender
    from kfp_volcano.elastic.policies.guards import Guarded
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot, Sample

__all__ = ["Metrics", "Standpoint", "Turns", "is_hungry"]


class Metrics(Protocol):
    """Values from outside of the cluster's objects. Answers at once, with what was read last; must not raise."""

    def of_queue(self, queue: str) -> Mapping[str, float]:
        """External metrics, by name."""
        ...

    def of_pod(self, namespace: str, name: str) -> Mapping[str, Sample]:
        """What was measured of a worker's pod, by metric."""
        ...

    def utilisation(self, namespace: str, pods: Sequence[str]) -> float | None:
        """Mean utilisation of the GPUs of these pods, 0 to 1; None where it is not measured."""
        ...


@dataclass(slots=True)
class Standpoint:
    """What is known of a queue from one turn to the next."""

    queue: str
    memory: Memory = field(default_factory=Memory)
    told: Told = field(default_factory=Told)
    hungry: bool = False
    """Whether something in it would take more room: a gang that waits, or a Job that stayed smaller than it may be."""
    turned_at: float = 0.0
    called: bool = False
    """Whether it is to have a turn because it is hungry."""
    early_s: float = 0.0
    """By how much the next look that nothing gives reason for is early."""


class Turns:
    """Takes turns of queues.

    Args:
        view: What is seen.
        policies: The policy of a queue.
        executor: Asks and executes.
        keeper: Keeps limits, and sees to unfit nodes.
        teller: Tells what was done.
        metrics: Values from outside; None where there are none.
        tender: Sees to classes and requests; None where nobody does.
        log: The timeline.
        namespace: Whose Jobs are resized; empty: everywhere.
        clock: Unix seconds.
    """

    def __init__(
        self,
        view: View,
        policies: Callable[[str], Guarded],
        *,
        executor: Executor,
        keeper: Keeper,
        teller: Teller,
        metrics: Metrics | None,
        tender: Tender | None,
        log: QueueLog | None,
        namespace: str,
        clock: Callable[[], float],
    ) -> None:
        self._view = view
        self._policies = policies
        self._executor = executor
        self._keeper = keeper
        self._teller = teller
        self._metrics = metrics
        self._tender = tender
        self._log = log
        self._namespace = namespace
        self._clock = clock

    def take(self, standpoint: Standpoint, now: float, since: float) -> float | None:
        """One turn, for what has changed since a time.

        Returns when to look again although nothing changes, Unix seconds; None if that need not be.
        """
        queue, stale_since = standpoint.queue, self._view.stale_since
        with self._view.reading() as stamped:
            if stamped is None:
                return now
            snapshot = stamped.index.snapshot(queue, now, self._namespace, pods=self._metrics is not None)
            versions = {job.key: stamped.index.version(job.key) for job in snapshot.jobs}
        snapshot = replace(
            self._measured(snapshot),
            memory=standpoint.memory,
            stale_s=0.0 if stale_since is None else max(0.0, now - stale_since),
        )
        policy = self._policies(queue)
        decisions = policy.decide(snapshot)
        requests: dict[str, str] = {}
        try:
            for decision in decisions:
                request = self._ask(queue, decision, versions[decision.job], now) if decision.resizes else None
                if request is not None:
                    requests[decision.job] = request
                if self._log:
                    self._log.decision(queue, decision, now, request)
        finally:  # also of a turn that breaks off: what it has asked for until then is on its way
            self._teller.decided(snapshot, decisions, requests, max(0.0, self._clock() - since))
        standpoint.memory = policy.remember(snapshot, decisions)
        with self._going_on(queue):
            self._tend(snapshot, standpoint.memory)
        standpoint.hungry = is_hungry(snapshot, decisions)
        standpoint.turned_at = now
        return policy.next_change(snapshot)

    def see_to(self, standpoint: Standpoint, now: float) -> float | None:
        """Execute and keep what is open in a queue, after its turn: requests of other queues need not wait for that.

        Returns when to look again although nothing changes, Unix seconds; None if that need not be.
        """
        return min((at for at in self._see_to_jobs(standpoint, now) if at is not None), default=None)

    def _ask(self, queue: str, decision: Decision, version: int, now: float) -> str | None:
        with self._going_on(queue):
            return self._executor.ask(decision, version, now)
        return None

    @contextmanager
    def _going_on(self, queue: str) -> Iterator[None]:
        """What is refused for good (a right is missing, an admission says no) stops nothing else of a queue's turn."""
        try:
            yield
        except ClusterError as error:
            if error.retryable:
                raise
            self._teller.failed(queue, error)

    def _tend(self, snapshot: QueueSnapshot, memory: Memory) -> None:
        """See to the queue's Jobs beside their size, now and then."""
        if self._tender is None or not self._tender.due(snapshot.queue, snapshot.at):
            return
        with self._view.reading() as stamped:
            if stamped is None:
                return
            ranked = self._tender.ranked(snapshot.queue, stamped.index, snapshot.at)
            priorities = stamped.index.priorities
        for job, change in self._tender.tend(replace(snapshot, ranked=ranked, priorities=priorities), memory.jobs):
            self._teller.reranked(snapshot.queue, job, change)

    def _see_to_jobs(self, standpoint: Standpoint, now: float) -> Iterator[float | None]:
        """Job by job, when to look at it again."""
        with self._view.reading() as stamped:
            if stamped is None:
                return
            index = stamped.index
            jobs = [job for job in index.jobs_of(standpoint.queue) if self._ours(job.key)]
            concerned = self._executor.concerned
            resizing = [
                (job, [pod.manifest() for pod in index.pods_of(job.key)])
                for job in jobs
                if job.unanswered or job.key in concerned
            ]
            kept = [(job, list(index.pods_of(job.key))) for job in jobs if job.kept]
            marked = list(index.marked_nodes)
            gone = [key for key in concerned if index.job(key) is None]
        for key in gone:
            self._executor.forget(key)
        for job, pods in resizing:
            with self._going_on(standpoint.queue):
                yield self._executor.drive(job.key, job.version, pods, now)
        for job, members in kept:
            with self._going_on(standpoint.queue):
                yield self._keeper.look(job, members, marked, now)
        self._teller.ends(standpoint.queue, jobs, standpoint.told, now)

    def _ours(self, job: str) -> bool:
        return not self._namespace or job.startswith(f"{self._namespace}/")

    def _measured(self, snapshot: QueueSnapshot) -> QueueSnapshot:
        """The snapshot with what was measured outside."""
        metrics = self._metrics
        if metrics is None:
            return snapshot
        jobs = tuple(_measured(job, metrics) for job in snapshot.jobs)
        return replace(snapshot, jobs=jobs, metrics=dict(metrics.of_queue(snapshot.queue)))


def _measured(job: ElasticJob, metrics: Metrics) -> ElasticJob:
    namespace = job.key.partition("/")[0]
    pods = tuple(replace(pod, samples=metrics.of_pod(namespace, pod.name)) for pod in job.pods)
    names = [pod.name for pod in job.pods if pod.phase == "Running" and not pod.terminating]
    return replace(job, pods=pods, utilisation=metrics.utilisation(namespace, names))


def is_hungry(snapshot: QueueSnapshot, decisions: Sequence[Decision]) -> bool:
    """Whether something in a queue would take more room."""
    stays = {decision.job for decision in decisions if not decision.resizes}
    return bool(snapshot.pending) or any(
        job.key in stays and job.workers < job.max_workers and not job.resize_open for job in snapshot.jobs
    )
