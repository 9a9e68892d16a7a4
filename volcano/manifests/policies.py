# SPDX-License-Identifier: Apache-2.0
"""What Volcano does when pods fail, go away, wait or finish: the policies of a Job and of its tasks.

A scale-down deletes pods, which Volcano tells as PodEvicted, and often as PodFailed: a Job that resizes has no policy
on either. Where a pod is never started again in place, one that is taken away also counts as failed, so that both lead
to the same. RestartPod and RestartTask are never used: in Volcano 1.15 they take the Service of the Job with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.manifests import frameworks

if TYPE_CHECKING:
    from kfp_volcano.schemas.training_job import Role, TrainingJob

__all__ = ["ACTIONS", "COMPLETES", "job_policies", "job_retries", "pending_policies", "task_retries"]

Policy = dict[str, str]

COMPLETES: Policy = {"event": "TaskCompleted", "action": "CompleteJob"}
ACTIONS = {"restartJob": "RestartJob", "fail": "TerminateJob", "abort": "AbortJob"}
"""What the spec calls an action of Volcano's."""
_MANY = 1000
"""`maxRetry` of a Job whose restarts are nobody's fault: evictions, resumes."""


def job_policies(job: TrainingJob) -> list[Policy]:
    """The Job's own policies, in the order in which Volcano looks for the first that fits."""
    failed, evicted = job.faults.failed, job.faults.evicted
    if frameworks.coordinated(job):
        return [{"event": "TaskFailed", "action": "TerminateJob"}]
    if failed != "retry":
        action = ACTIONS[failed]
        return [{"event": "PodFailed", "action": action}, {"event": "PodEvicted", "action": action}]
    then = ACTIONS.get(evicted or "restartJob")
    # A pod whose program is started again in place fails only when its node takes it away.
    lost = [{"event": event, "action": then} for event in ("PodEvicted", "PodFailed")] if then else []
    return [{"event": "TaskFailed", "action": "TerminateJob"}, *lost]


def job_retries(job: TrainingJob) -> int:
    """`maxRetry` of the Job: it is given up at the restart of this number."""
    restarts = job.faults.failed == "restartJob" and not frameworks.coordinated(job)
    return job.faults.retries + 1 if restarts else _MANY


def task_retries(job: TrainingJob, role: Role, largest: int) -> int:
    """`maxRetry` of a task of at most `largest` pods: it has failed at so many restarts of all its containers.

    A preflight that fails is started once more in its pod before anybody can take that away.
    """
    if job.faults.failed == "fail":
        return 1
    spare = job.faults.preflight is not None and frameworks.examined(job, role)
    return (job.faults.retries + spare) * largest


def pending_policies(job: TrainingJob) -> list[Policy]:
    """Policies of a task of the gang whose pods wait for too long."""
    pending = job.faults.pending
    if pending is None:
        return []
    return [{"event": "PodPending", "action": ACTIONS[pending.then], "timeout": f"{pending.after_s:g}s"}]
