# SPDX-License-Identifier: Apache-2.0
"""What stops all automatic resizes of a queue: repeated failures, and a cluster that has not been seen. Pure.

All of them, also those that are owed to a gang. What is believed of the cluster is wrong then, and a Job that shrinks
in vain helps no gang; gangs keep their floors, Volcano's own reclaim goes on, and so does what a person sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.guards.verdict import Guard, Verdict, stay
from kfp_volcano.elastic.policies.memory import next_breaker
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.settings import GuardSettings
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot

__all__ = ["stopped"]


def stopped(snapshot: QueueSnapshot, settings: GuardSettings) -> Guard:
    """The guard that says of every Job of the queue whether automatic resizes are stopped."""
    breaker = next_breaker(snapshot, settings)
    if snapshot.stale_s > settings.stale_s:
        reason, why = Reason.STALE, f"the cluster has not been seen for {snapshot.stale_s:.0f} s"
    elif breaker.open_until is not None:
        left = breaker.open_until - snapshot.at
        reason, why = Reason.BREAKER_OPEN, f"{breaker.why}: no automatic resize for {left:.0f} s more"
    else:
        return lambda _job, _at, _settings: None

    def guard(job: ElasticJob, _at: float, _: GuardSettings) -> Verdict | None:
        return stay(job, reason, f"{why}: {job.name} stays at {counted(job.workers, 'worker')}")

    return guard
