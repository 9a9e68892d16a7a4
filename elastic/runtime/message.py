# SPDX-License-Identifier: Apache-2.0
"""What each worker tells all others with a step's gradients: a row of numbers, exact in float32."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["METRICS", "Decision", "Flag", "Row"]

METRICS = 8
"""How many values an evaluation may have."""

_EXACT_HEX_DIGITS = 6
"""float32 holds whole numbers of 24 bits exactly."""


class Flag(IntFlag):
    """What a worker wants of the group."""

    LEAVING = 1
    RENEW = 2
    """The lease has run out; only rank 0's counts."""
    SAVE = 4
    LOST = 8
    """Another group may train in this one's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One worker's row."""

    state: int
    """Digest of the state its step began from."""
    flags: Flag
    silent_s: float
    """For how long it has sent no heartbeat."""
    count: int
    """Samples it fed."""
    loss: float
    """Its part of the global batch's mean loss."""
    node: int = 0
    """Digest of its node's name; 0 where that is not known."""
    summed_s: float = 0.0
    """How long it took it to sum the last step's gradients with the others', and to wait for them."""
    norm: float = -1.0
    """Length of the last step's whole gradient; -1 where it was not looked at."""
    evaluated: int = 0
    """How many samples it evaluated the state on; 0 where no evaluation was due, or none was its part."""
    metrics: tuple[float, ...] = (0.0,) * METRICS
    """What the evaluation gave."""
    noise: float = -1.0
    """The gradient noise scale, in samples, as it sees it; -1 where it is not known. All go by that of the first row,
    for what each computes by itself may differ in the last bit from one kind of device to another."""
    worker: int = 0
    """Digest of its process' name."""
    computed_s: float = 0.0
    """How long its share took it, from when it was given out to the end of the backward pass."""

    @staticmethod
    def state_of(lineage: str) -> int:
        """A lineage as a number that float32 holds."""
        return int(lineage[:_EXACT_HEX_DIGITS], 16)

    @staticmethod
    def number_of(name: str) -> int:
        """The name of a node or a process as a number that float32 holds; two of a Job hardly ever have the same."""
        return int(hashlib.sha256(name.encode()).hexdigest()[:_EXACT_HEX_DIGITS], 16) if name else 0

    @staticmethod
    def noise_of(scale: float | None) -> float:
        """A noise scale as a number that travels."""
        return -1.0 if scale is None else scale

    def numbers(self) -> list[float]:
        """The row as it travels."""
        return [
            float(self.state),
            float(self.flags),
            self.silent_s,
            float(self.count),
            self.loss,
            float(self.node),
            self.summed_s,
            float(self.worker),
            self.computed_s,
            self.noise,
            self.norm,
            float(self.evaluated),
            *self.metrics,
        ]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Row:
        """The row that has travelled."""
        state, flags, silent_s, count, loss, node, summed_s, worker, computed_s, *others = numbers
        noise, norm, evaluated, *metrics = others
        return cls(
            state=int(state),
            flags=Flag(int(flags)),
            silent_s=silent_s,
            count=int(count),
            loss=loss,
            node=int(node),
            summed_s=summed_s,
            norm=norm,
            evaluated=int(evaluated),
            metrics=tuple(metrics),
            noise=noise,
            worker=int(worker),
            computed_s=computed_s,
        )

    @property
    def noise_scale(self) -> float | None:
        """Its gradient noise scale; None where it is not known."""
        return None if self.noise < 0 else self.noise

    @staticmethod
    def disagreement(rows: Sequence[Row], counts: Sequence[int]) -> str:
        """Why the step of these workers does not count; empty where it does.

        `rows` is empty where the sum failed; `counts` is how many samples each rank was to feed.
        """
        if not rows:
            return "a worker was lost"
        if len({row.state for row in rows}) > 1:
            return "the workers started from different states"
        if any(Flag.LOST in row.flags for row in rows):
            return "the lighthouse was lost, or has another group"
        fed = [row.count for row in rows]
        return "" if fed == list(counts) else f"{fed} samples were fed instead of {list(counts)}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes after a committed step: the same for all workers, for all have seen the same rows."""

    leaving: bool
    """Somebody leaves; no quorum is asked for until the leavers have been silent for long enough."""
    part: bool
    """The leavers go now."""
    everyone: bool
    """All leave: the training stops here."""
    renew: bool
    """Those who stay agree on who takes part."""
    save: bool
    """The first worker writes a checkpoint."""

    @classmethod
    def of(cls, rows: Sequence[Row], *, silence_s: float) -> Decision:
        """The decision that follows from all workers' rows; a leaver is forgotten after `silence_s` of silence."""
        leavers = [row for row in rows if Flag.LEAVING in row.flags]
        everyone = len(leavers) == len(rows)
        part = everyone or (bool(leavers) and all(row.silent_s >= silence_s for row in leavers))
        return cls(
            leaving=bool(leavers),
            part=part,
            everyone=everyone,
            renew=part or (not leavers and Flag.RENEW in rows[0].flags),
            save=everyone or any(Flag.SAVE in row.flags for row in rows),
        )
