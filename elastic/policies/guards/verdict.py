# SPDX-License-Identifier: Apache-2.0
"""What a guard says of a Job. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.snapshot import ElasticJob

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.policy import Reason

__all__ = ["Guard", "Verdict", "no_growth", "stay"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a guard allows a Job: these sizes, and no others for this reason."""

    sizes: tuple[int, ...]
    reason: Reason
    explanation: str
    urgent_only: bool = False
    """Whether another size is allowed only where it is owed to a gang."""
    target: int | None = None
    """The size it is going to have anyway: a resize that is open, or what a person has set."""
    imposed: bool = False
    """Whether the guard itself decides that the Job is to have `target`."""

    def allows(self, size: int, *, urgent: bool) -> bool:
        """Whether the Job may have a size that is not its present one."""
        return size in self.sizes and (urgent or not self.urgent_only)


Guard: TypeAlias = Callable[[ElasticJob, float, GuardSettings], Verdict | None]
"""(Job, Unix seconds, settings): None where it has nothing to say."""


def stay(job: ElasticJob, reason: Reason, explanation: str, target: int | None = None) -> Verdict:
    """The Job keeps its size."""
    return Verdict((job.workers,), reason, explanation, target=target)


def no_growth(job: ElasticJob, reason: Reason, explanation: str, *, urgent_only: bool = False) -> Verdict:
    """The Job keeps its size or shrinks."""
    return Verdict(tuple(size for size in job.sizes if size <= job.workers), reason, explanation, urgent_only)
