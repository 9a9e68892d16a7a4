# SPDX-License-Identifier: Apache-2.0
"""The rule to compare with: whoever may have more takes it as soon as it is free, and gives nothing back. Pure.

So do jobs that are elastic by themselves, each for its own sake: those of Ray Train take what their cluster has, up to
their maximum, whenever their monitor looks; who waits for GPUs waits for the end of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.policies.memory import Memory
from kfp_volcano.elastic.policies.outlook import Rest
from kfp_volcano.elastic.policies.policy import Decision, Reason, hold
from kfp_volcano.elastic.policies.room import room_of, unclaimed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.policies.outlook import Outlook
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot

__all__ = ["Greedy"]


class Greedy:
    """First come, most had; within no guards but that a resize ends before the next begins."""

    name: ClassVar[str] = "greedy"
    steadfast: ClassVar[bool] = True

    @property
    def policy(self) -> Greedy:
        """It decides itself."""
        return self

    def decide(self, snapshot: QueueSnapshot) -> tuple[Decision, ...]:
        """One decision for each job, sorted by key; see `Policy`."""
        draft = unclaimed(room_of(snapshot), snapshot).draft()
        decided = {}
        for job in sorted(snapshot.jobs, key=lambda job: (job.created_at, job.key)):
            decided[job.key] = hold(
                job, Reason.STEADY, f"{job.name} has all that it may have, or finds nothing", self.name
            )
            larger = [] if job.resize_open else sorted((size for size in job.sizes if size > job.workers), reverse=True)
            for size in larger:
                if draft.take_equal(job.shape, job.gpus_per_worker, size - job.workers):
                    decided[job.key] = Decision(
                        job=job.key,
                        from_workers=job.workers,
                        to_workers=size,
                        reason=Reason.QUEUE_IDLE,
                        explanation=f"{job.name} takes what is free: it grows from {job.workers} to {size} workers",
                        urgent=False,
                        policy=self.name,
                    )
                    break
        return tuple(decided[key] for key in sorted(decided))

    def remember(self, snapshot: QueueSnapshot, decisions: Sequence[Decision]) -> Memory:  # noqa: ARG002 - as of policies
        """Nothing."""
        return Memory()

    def next_change(self, snapshot: QueueSnapshot) -> float | None:  # noqa: ARG002 - as of policies
        """It waits for events alone."""
        return None

    def rest(self, outlook: Outlook) -> Rest | None:
        """Whether it resizes nothing; see `Resting`."""
        return None if outlook.growing and outlook.free_gpus > 0 else Rest()
