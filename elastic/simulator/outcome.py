# SPDX-License-Identifier: Apache-2.0
"""What came of a scenario under a policy. Pure values; times are seconds from the scenario's beginning."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Decided", "JobOutcome", "Outcome", "Span"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time in which a job had the same GPUs."""

    begin: float
    end: float
    gpus: int
    nodes: tuple[str, ...] = ()
    lost_s: float = 0.0
    """Of it, seconds that were spent on starting, resizing or coming back instead of training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What became of a job."""

    name: str
    team: str
    queue: str
    submitted_at: float
    started_at: float | None
    """When its gang first had its GPUs; None: never."""
    ended_at: float | None
    """None: it had not ended when the simulation did."""
    spans: tuple[Span, ...]
    asked_gpus: int
    """What it asks for where sizes are fixed."""
    alone_s: float
    """What it would have taken for itself on `asked_gpus`."""
    resizes: int
    restarts: int = 0
    """How often its gang was broken."""
    done: float = 1.0

    @property
    def jct(self) -> float | None:
        """Job completion time: from submission to end."""
        return None if self.ended_at is None else self.ended_at - self.submitted_at

    @property
    def waited_s(self) -> float | None:
        """From submission to its first GPUs."""
        return None if self.started_at is None else self.started_at - self.submitted_at

    @property
    def gpu_s(self) -> float:
        """GPU-seconds it held."""
        return sum((span.end - span.begin) * span.gpus for span in self.spans)

    @property
    def lost_gpu_s(self) -> float:
        """Of these, spent on starting, resizing or coming back."""
        return sum(span.lost_s * span.gpus for span in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision of the autoscaler's that changed a size, or why none did where that is new."""

    at: float
    job: str
    from_workers: int
    to_workers: int
    reason: str
    """The `Reason`'s word."""
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a scenario under a policy."""

    scenario: str
    policy: str
    gpus: int
    """GPUs of all nodes."""
    jobs: tuple[JobOutcome, ...]
    """In the scenario's order."""
    ended_at: float
    """When the last job ended, or the simulation did."""
    decided: tuple[Decided, ...] = ()
    events: int = 0
    """What the simulation took up, one after another."""
    seed: int = 0
    notes: tuple[str, ...] = field(default=())
