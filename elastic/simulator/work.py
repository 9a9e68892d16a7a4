# SPDX-License-Identifier: Apache-2.0
"""What a job of a scenario has to do, and how fast it does it where. Pure; knows no clock.

A `Work` is what the scenario says and never changes; `begin` gives the `Training` that is under way in one simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kfp_volcano.schemas.records import BatchRange, Measured

__all__ = ["Placement", "Training", "Work"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the GPUs of a job are."""

    gpus: tuple[int, ...] = ()
    """On each node that it has some of, in the order of the cluster's nodes; none is zero."""
    classes: tuple[str, ...] = ()
    """The GPU class of each of these nodes; empty where the cluster has but one."""

    @property
    def total(self) -> int:
        """GPUs it holds."""
        return sum(self.gpus)


class Training(Protocol):
    """A job's training under way."""

    @property
    def done(self) -> float:
        """Part of its work that is done, 0 to 1; 1 exactly when it is at its end."""

    @property
    def batch(self) -> int | None:
        """Global batch it trains with at present, samples; None where its work does not tell."""

    @property
    def noise_scale(self) -> float | None:
        """Gradient noise scale at present, samples; None where its work does not tell."""

    @property
    def measured(self) -> tuple[Measured, ...]:
        """How fast it was at the sizes it had so far: what its progress record would say."""

    @property
    def batch_range(self) -> BatchRange | None:
        """What it chooses its batch from by itself; None where it does not."""

    @property
    def pace(self) -> float | None:
        """Part of its work that it does in a second, as it last trained; None before it has."""

    def advance(self, placement: Placement, seconds: float) -> float:
        """Train there for at most so long: the seconds until its end where that is within them, else `seconds`."""

    def left(self, placement: Placement) -> float:
        """Seconds to its end if it trains on there; infinity where it cannot."""


class Work(Protocol):
    """What a job has to do."""

    def begin(self, *, adaptive: bool = False) -> Training:
        """The training at its start.

        Args:
            adaptive: It chooses its batch anew as its size changes, where its work knows what a batch is worth; else
                it keeps to the one that its scenario gives it.
        """

    def alone_s(self, gpus: int) -> float:
        """Seconds it would take from start to end on so many GPUs, packed as tightly as they go, for itself."""
