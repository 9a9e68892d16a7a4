# SPDX-License-Identifier: Apache-2.0
"""What a scheduler is that places all jobs itself, each interval anew. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.simulator.scenario import Job, Node
    from kfp_volcano.elastic.simulator.work import Training

__all__ = ["Allocator", "Present", "Spots"]

Spots: TypeAlias = tuple[tuple[str, int], ...]
"""(node, GPUs) of a job, in the order of its ring of workers; no node twice, none without GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A job that has been submitted and is not at its end."""

    job: Job
    training: Training
    spots: Spots
    """What it holds; empty: nothing."""
    served_gpu_s: float
    """GPU-seconds it has held so far."""
    restarts: int
    """How often it was given other GPUs than it had, its first ones not counted."""


class Allocator(Protocol):
    """One for each simulation: it may remember."""

    @property
    def name(self) -> str:
        """As it is asked for."""

    @property
    def adaptive(self) -> bool:
        """Whether jobs choose their batch under it; see `Work.begin`."""

    def allocate(self, jobs: Sequence[Present], nodes: Sequence[Node], at: float) -> Mapping[str, Spots]:
        """What each job is to hold from now on, by name; one that is not named holds nothing.

        A job whose spots are other than before, in their order too, is started there anew.

        Args:
            jobs: In the order of the scenario.
            nodes: That are there.
            at: The time, a multiple of the scenario's interval.
        """
