# SPDX-License-Identifier: Apache-2.0
"""The spec's `monitor`: what training watches of itself, and what follows from what it sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["EarlyStop", "Evaluate", "Monitor", "Rollback", "SlowDown", "Spike", "Then"]

Then = Literal["alert", "stopGrowing", "rollback", "lowerLR", "stop"]
"""What follows: it is told; the autoscaler adds no workers; back to an earlier checkpoint; a lower learning rate; the
training ends as failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """A number of each step that is not to leap up, nor to be NaN or infinite."""

    spike: float = 3.0
    """How many times as far above the window's median as the window's highest value."""
    window: int = 50
    """Steps before, which are the measure."""
    steps: int = 3
    """How many steps in a row: one hard batch is no fault. NaN and infinity are one at once."""
    then: Then = "alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDown:
    """A loss that falls more slowly after a resize than before it."""

    ratio: float = 0.25
    """To which part of its pace before the resize, by samples, it may fall."""
    window: int = 100
    """Steps on either side of the resize."""
    then: Then = "alert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """How training goes on from an earlier checkpoint."""

    limit: int = 3
    """How often; the next time ends the training."""
    then: Literal["lowerLR", "skip"] = "lowerLR"
    """The same data with a lower learning rate, or without the batches that led to the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStop:
    """When training has finished before all its epochs."""

    patience: int = 5
    """Evaluations in a row that are no better."""
    min_delta: float = 0.0
    """By how much an evaluation must be better to count as better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """When the training code's `evaluate` is called. Every epoch where neither interval is given."""

    epochs: int | None = None
    steps: int | None = None
    metric: str | None = None
    """The metric by which the best checkpoint is kept, and training stops early."""
    mode: Literal["max", "min"] = "max"
    early_stop: EarlyStop | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    """What training watches of itself."""

    loss: Spike | None = None
    gradient: Spike | None = None
    """The length of the whole gradient."""
    slowdown: SlowDown | None = None
    rollback: Rollback = field(default_factory=Rollback)
    lower_lr: float = field(default=0.5, metadata={"key": "lowerLR"})
    """Factor by which the learning rate is lowered each time."""
    evaluate: Evaluate = field(default_factory=Evaluate)
