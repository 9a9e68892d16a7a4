# SPDX-License-Identifier: Apache-2.0
"""What is told of an autoscaler's work: to a decision log, to metrics, to Events, to a queue's timeline.

Nothing of it is needed to go on; a recorder that fails stops nobody from scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.schemas.records import ClassChange, ResizeOutcome

__all__ = ["JobEnd", "Recorder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How an elastic Job has ended. Times are Unix seconds."""

    job: str
    """namespace/name."""
    state: str
    """Its last one: Succeeded, Failed, …"""
    created_at: float
    ended_at: float
    loss: float | None = None
    """The last that training reported."""
    done: float | None = None
    """Share of its steps that were done, where training reports progress."""


class Recorder(Protocol):
    """Is told what happens, in order, by one thread; must neither block nor raise."""

    def decided(
        self, snapshot: QueueSnapshot, decisions: Sequence[Decision], requests: Mapping[str, str], *, lag_s: float
    ) -> None:
        """A turn of a queue: what was seen, what was decided, and the ids of the requests it led to by Job.

        `lag_s`: from the change that gave reason for the turn to its end.
        """
        ...

    def resized(self, queue: str, job: str, outcome: ResizeOutcome) -> None:
        """A resize has its final outcome."""
        ...

    def reranked(self, queue: str, job: str, change: ClassChange) -> None:
        """A Job was given another priority class."""
        ...

    def ended(self, queue: str, end: JobEnd) -> None:
        """An elastic Job has ended."""
        ...

    def failed(self, queue: str, error: Exception) -> None:
        """A turn came to nothing."""
        ...
