# SPDX-License-Identifier: Apache-2.0
"""The log of operations: what a training's parts did and saw, one JSON line each, in `events/` of the job folder.

Each process writes a file of its own, `events/<owner>.jsonl`; all of them by time are the story of a training
(`kfp-volcano trace`). A line that cannot be read, and a kind that a newer version added, are left out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.records import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Event", "Kind", "read", "to_line"]


class Kind(str, Enum):
    """What happened."""

    STARTED = "Started"
    """A worker process began to train."""
    RESTORED = "Restored"
    """It began with a checkpoint's state."""
    RESIZED = "Resized"
    """The number of workers that train has changed."""
    LEFT = "Left"
    """A worker left on purpose."""
    FINISHED = "Finished"
    """All batches are committed."""

    BATCH_CHANGED = "BatchChanged"
    """The global batch has another size, and the learning rate follows it."""
    UPDATE_SKIPPED = "UpdateSkipped"
    """The scaled gradients overflowed: no update, and a smaller loss scale."""

    CHECKPOINT_SAVED = "CheckpointSaved"
    CHECKPOINT_FAILED = "CheckpointFailed"
    """It could not be written."""
    CHECKPOINT_DAMAGED = "CheckpointDamaged"
    """It is not what was written: the one before is used."""

    EVALUATED = "Evaluated"
    EVALUATION_FAILED = "EvaluationFailed"
    STOPPED_EARLY = "StoppedEarly"
    """The evaluation's metric no longer improves: training has finished."""

    NOT_FINITE = "NotFinite"
    """Loss or gradient is NaN or infinite."""
    LOSS_SPIKE = "LossSpike"
    GRADIENT_SPIKE = "GradientSpike"
    SLOW_DOWN = "SlowDown"
    """The loss falls more slowly than before the last resize."""
    RECOVERED = "Recovered"
    """What was seen is over."""
    ROLLED_BACK = "RolledBack"
    """Training went back to an earlier checkpoint."""
    BATCHES_SKIPPED = "BatchesSkipped"
    """Batches that led to a fault are not fed again."""
    RATE_LOWERED = "RateLowered"
    """The learning rate has another factor."""
    GROWTH_STOPPED = "GrowthStopped"
    """The autoscaler is told not to add workers."""
    SIZE_ASKED = "SizeAsked"
    """The autoscaler is told which number of workers training had when it was fine."""
    STOPPED = "Stopped"
    """The watch ended the training."""

    WORKER_LOST = "WorkerLost"
    """A worker is gone without a word."""
    STRAGGLER = "Straggler"
    """A worker is slower than the others."""
    HANG = "Hang"
    """A worker makes no progress."""
    COORDINATOR_LOST = "CoordinatorLost"
    """It has ended, does not answer, or this worker is cut off from it: training rests."""
    COORDINATOR_BACK = "CoordinatorBack"
    """This worker has reached it again."""
    OUT_OF_MEMORY = "OutOfMemory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the log."""

    kind: Kind
    time: float
    """Unix seconds, by the writer's clock."""
    message: str
    """One sentence for people."""
    owner: str = ""
    """The process that wrote it, as its file is called."""
    step: int | None = None
    """Global batches committed then; None where the writer does not train."""
    samples: int | None = None
    """Samples committed then."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Numbers and names behind the message."""


def to_line(event: Event) -> str:
    """The event as one line, newline included; facts that JSON cannot hold are written as text."""
    value = {key: part for key, part in asdict(event).items() if part is not None}
    return json.dumps(_finite(value), separators=(",", ":"), default=str) + "\n"


def read(files: Mapping[str, Iterable[str]]) -> list[Event]:
    """The events in all files, by time. `files`: each file's lines by its name, with or without `.jsonl`."""
    found = []
    for name, lines in sorted(files.items()):
        for line in lines:
            try:
                event = parse(Event, line)
            except ValueError:  # a torn line, or a kind of a newer version
                continue
            found.append(replace(event, owner=event.owner or name.removesuffix(".jsonl")))
    return sorted(found, key=lambda event: event.time)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; they are told as text."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124 - NaN
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
