# SPDX-License-Identifier: Apache-2.0
"""Who trains together now, as the training loop sees it; and the group of one, outside any Job."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Protocol

from torch import distributed

if TYPE_CHECKING:
    import torch

    from kfp_volcano.elastic.runtime.crew import Crew

__all__ = ["Group", "Solo"]


class Group(Protocol):
    """Who trains now, seen from one process: all processes of all workers, those of a worker next to each other."""

    rank: int
    world: int
    rendezvous: str
    """Names this group of processes; never used for two groups, nor again after a failed step."""
    parting: bool
    """Whether some are leaving: their hearts are not heard any more, though they still take part."""

    def renew(self, step: int, *, patient: bool) -> bool:
        """Agrees on who takes part in the next steps; brings whoever is behind `step` up to date.

        False where it did not work out: call again. `patient` waits for a lost lighthouse as long as it takes.
        """

    def due(self) -> bool:
        """Whether the lease has run out by this worker's clock."""

    def holds(self) -> bool:
        """Whether no other workers can be training in this group's place; some of its workers ask, for all."""

    def add(self, tensors: list[torch.Tensor]) -> bool:
        """Sums tensors in place; False (and the group is broken) where that failed.

        Over all processes, or where gradients are sharded over those of the same rank in their workers.
        """

    def waited_for(self) -> bool:
        """Whether nobody gets on without this worker."""

    def settle(self, *, ok: bool, reason: str = "") -> None:
        """Ends a step. After `ok=False` the group must be renewed."""

    def fall_silent(self) -> None:
        """Sends no more heartbeats; the step under way and those of the same lease can still be done."""

    def close(self) -> None:
        """Leaves at once."""


class Solo:
    """One worker, outside any Job."""

    def __init__(self, crew: Crew) -> None:
        self.rank, self.world = crew.rank, crew.size
        self._crew = crew
        self.rendezvous = self._name()
        self.parting = False

    def renew(self, step: int, *, patient: bool) -> bool:
        """Nobody to agree with."""
        del step, patient
        return True

    def due(self) -> bool:
        """Nobody can come."""
        return False

    def holds(self) -> bool:
        """Nobody else trains this model."""
        return True

    def add(self, tensors: list[torch.Tensor]) -> bool:
        """The sum over its processes."""
        for tensor in tensors if self.world > 1 else ():
            distributed.all_reduce(tensor)
        return True

    def waited_for(self) -> bool:
        """There is nobody else to do the work."""
        return True

    def settle(self, *, ok: bool, reason: str = "") -> None:
        """A failed attempt must not share its name with the next."""
        del reason
        if not ok:
            self.rendezvous = self._name()

    def fall_silent(self) -> None:
        """Nobody listens."""

    def close(self) -> None:
        """Nothing is open."""

    def _name(self) -> str:
        return self._crew.from_first(lambda: f"solo/{uuid.uuid4().hex}")
