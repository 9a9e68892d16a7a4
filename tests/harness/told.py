# SPDX-License-Identifier: Apache-2.0
"""What recorders are told in tests: a queue of two Jobs, decisions about them, and how resizes end."""

from __future__ import annotations

from typing import Any

from kfp_volcano.elastic.policies.policy import Decision, Reason
from kfp_volcano.elastic.policies.snapshot import ElasticJob, PendingGang, QueueSnapshot
from kfp_volcano.schemas.records import ClassChange, Phase, ResizeOutcome

__all__ = ["AT", "class_change", "decision", "outcome", "snapshot"]

AT = 1_790_000_000.0


def snapshot(**changes: Any) -> QueueSnapshot:
    """The queue `research`: two Jobs, a gang that has waited for 40 s, 2 of 8 GPUs free."""
    job = {"workers": 3, "running": 3, "min_workers": 1, "max_workers": 8, "sizes": (1, 2, 3, 8), "gpus_per_worker": 1}
    jobs = tuple(ElasticJob(key=key, nodes=("n",) * 3, **job) for key in ("ml/digits", "ml/other"))
    gang = PendingGang(key="vision/big", pods=(2, 2), since=AT - 40)
    seen = {"queue": "research", "at": AT, "limit_gpus": 8, "allocated_gpus": 6, "deserved_gpus": 5}
    return QueueSnapshot(**{**seen, "jobs": jobs, "pending": (gang,), **changes})


def decision(job: str, to: int = 3, reason: Reason = Reason.AT_MAXIMUM, **changes: Any) -> Decision:
    """A decision about one of them."""
    said = {"explanation": f"because of {reason.value}", "urgent": False, "policy": "threshold", **changes}
    return Decision(job=job, from_workers=3, to_workers=to, reason=reason, **said)


def outcome(phase: Phase = Phase.DONE, **changes: Any) -> ResizeOutcome:
    """How the resize `r1` ended."""
    said = {"from_workers": 3, "to_workers": 8, "reason": "QueueIdle", "explanation": "2 GPUs are idle", "id": "r1"}
    ended = {"done_at": AT + 12, "pause_s": 0.3} if phase is Phase.DONE else {}
    return ResizeOutcome(phase=phase, requested_at=AT, executed_by="me", **{**said, **ended, **changes})


def class_change(**changes: Any) -> ClassChange:
    """The Job rose by a class."""
    said = {"from_class": "batch-low", "to_class": "batch", "reason": "WaitedLong", "by": "autoscaler", "at": AT}
    return ClassChange(**{**said, "explanation": "digits has waited for 45 min", **changes})
