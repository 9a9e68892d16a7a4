# SPDX-License-Identifier: Apache-2.0
"""What is done for a queue's Jobs beside their size: their priority classes, and advice on their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.advising import Adviser
from kfp_volcano.elastic.autoscaler.ranking import Ranker
from kfp_volcano.elastic.policies.choice import priorities_for, requests_for
from kfp_volcano.elastic.policies.memory import JobMemory
from kfp_volcano.elastic.policies.priorities import reranked
from kfp_volcano.elastic.policies.requests import advised
from kfp_volcano.elastic.policies.snapshot import Ranked
from kfp_volcano.volcano.manifests.status import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kfp_volcano.elastic.autoscaler.observing.index import ClusterIndex
    from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts, Rank
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.schemas.policy import QueuePolicy
    from kfp_volcano.schemas.records import ClassChange
    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["TEND_S", "Tender"]

TEND_S = 15.0
"""Least time between two looks at a queue, seconds: classes and requests follow minutes, not moments."""


class Tender:
    """Looks after the Jobs of queues, where their Policy says so.

    Args:
        cluster: Where the Jobs are.
        specs: The Policy of a queue, asked each time.
        identity: Who this is, for records.
        namespace: Whose Jobs; empty: everybody's.
    """

    def __init__(
        self, cluster: Cluster, specs: Callable[[str], QueuePolicy], *, identity: str, namespace: str = ""
    ) -> None:
        self._specs = specs
        self._namespace = namespace
        self._ranker = Ranker(cluster, identity=identity)
        self._adviser = Adviser(cluster)
        self._next_at: dict[str, float] = {}
        self._best: dict[str, dict[str, float]] = {}
        """The best speed seen of each Job, by queue. Lost: a Job falls behind what is seen from then on."""
        self._waiting: dict[str, dict[str, float]] = {}
        """Since when each Job that had run waits again, by queue. Lost: counted anew."""

    def due(self, queue: str, now: float) -> bool:
        """Whether a queue is to be looked at."""
        spec = self._specs(queue)
        beside = priorities_for(spec) is not None or requests_for(spec) is not None
        return beside and now >= self._next_at.get(queue, 0.0)

    def ranked(self, queue: str, index: ClusterIndex, now: float) -> tuple[Ranked, ...]:
        """The queue's Jobs whose class may be changed, as far as they are seen."""
        jobs = [
            job
            for job in index.jobs_of(queue)
            if job.rank is not None and not job.state.final and not job.leaving and self._ours(job.key)
        ]
        best, waiting = self._best.get(queue, {}), self._waiting.get(queue, {})
        self._best[queue] = {
            job.key: max(best.get(job.key, 0.0), job.pace.throughput) for job in jobs if job.pace is not None
        }
        self._waiting[queue] = {
            job.key: job.created if job.state is JobState.PENDING else waiting.get(job.key, now)
            for job in jobs
            if index.waits(job.key)
        }
        values = index.priorities
        return tuple(self._ranked(job, job.rank, values) for job in sorted(jobs, key=lambda job: job.key) if job.rank)

    def tend(self, snapshot: QueueSnapshot, memory: Mapping[str, JobMemory]) -> Sequence[tuple[str, ClassChange]]:
        """Do what is due in a queue, whose snapshot holds what `ranked` gave; returns the classes that were changed."""
        self._next_at[snapshot.queue] = snapshot.at + TEND_S
        spec = self._specs(snapshot.queue)
        priorities, requests = priorities_for(spec), requests_for(spec)
        changed: list[tuple[str, ClassChange]] = []
        if priorities is not None:
            changed += self._ranker.carry_out(reranked(snapshot, priorities), snapshot.priorities, snapshot.at)
        if requests is not None:
            advice = [
                each
                for job in snapshot.jobs
                for each in advised(job, memory.get(job.key, JobMemory()), requests, snapshot.at)
            ]
            self._adviser.carry_out(advice, snapshot.at)
        return changed

    def _ranked(self, job: JobFacts, rank: Rank, values: Mapping[str, int]) -> Ranked:
        pace = job.pace
        return Ranked(
            key=job.key,
            priority_class=job.priority_class,
            base_class=rank.base,
            surplus_priority=values.get(rank.surplus) if rank.surplus else None,
            waiting_since=self._waiting[job.queue].get(job.key),
            ranked_at=rank.changed_at,
            sized_at=job.history.last_at,
            done=pace.done if pace else None,
            progressed_at=pace.at if pace else None,
            throughput=pace.throughput if pace else None,
            best_throughput=self._best[job.queue].get(job.key),
        )

    def _ours(self, job: str) -> bool:
        return not self._namespace or job.startswith(f"{self._namespace}/")
