# SPDX-License-Identifier: Apache-2.0
"""A policy that says what it was told to, and a small queue for it: what guards make of a wish."""

from __future__ import annotations

from dataclasses import dataclass

from books import name, states
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.policy import Decision, Reason
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import NOWHERE, ElasticJob, QueueSnapshot

NOW = 10_000.0
JOB = ElasticJob(
    key="ml/digits",
    workers=4,
    running=4,
    min_workers=2,
    max_workers=8,
    sizes=(2, 4, 8),
    gpus_per_worker=1,
    nodes=(name(0),) * 4,
)


@dataclass(frozen=True)
class Says:
    """A policy that says what it was told to, urgent or not."""

    wanted: dict[str, int]
    urgent: bool = False
    name: str = "says"

    def decide(self, snapshot):
        return tuple(
            Decision(
                job=job.key,
                from_workers=job.workers,
                to_workers=self.wanted.get(job.key, job.workers),
                reason=Reason.QUEUE_IDLE,
                explanation="because",
                urgent=self.urgent,
                policy=self.name,
                recommended=self.wanted.get(job.key),
            )
            for job in snapshot.jobs
        )


def queue(*jobs, free=(4, 4), limit=16, at=NOW, **more):
    """A queue of 16 GPUs with these Jobs."""
    held = sum((len(job.nodes) - job.nodes.count(NOWHERE)) * job.gpus_per_worker for job in jobs)
    kept = {"allocated_gpus": held, "nodes": states(free)}
    return QueueSnapshot(queue="research", at=at, limit_gpus=limit, jobs=jobs, **{**kept, **more})


def decided(wanted, snapshot, *, urgent=False, settings=GuardSettings()):  # noqa: B008 - frozen
    """Size and reason for each Job when the policy wants these sizes."""
    decisions = Guarded(Says(wanted, urgent=urgent), settings).decide(snapshot)
    return {decision.job: (decision.to_workers, decision.reason) for decision in decisions}
