# SPDX-License-Identifier: Apache-2.0
"""Who trains now, and whether this worker goes on with them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kfp_volcano.elastic.runtime.group import Group, Solo
from kfp_volcano.elastic.runtime.message import Decision, Flag
from kfp_volcano.elastic.runtime.replica_group import SILENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfp_volcano.elastic.runtime.crew import Crew
    from kfp_volcano.elastic.runtime.message import Row
    from kfp_volcano.elastic.runtime.wishes import Wishes

__all__ = ["Membership"]

_BACKOFF_S = 0.05


class Membership:
    """A worker's place among those that train: what the last step decided of it.

    Args:
        crew: the processes of this worker.
        wishes: whether it was told to leave.
    """

    def __init__(self, crew: Crew, wishes: Wishes) -> None:
        self._crew, self._wishes = crew, wishes
        self.group: Group = Solo(crew)
        self.must_renew = True
        """Whether the group has to agree anew before the next step."""
        self.parting = False
        """Whether this worker takes part in no further step."""
        self._stray = False
        self._silent_since: float | None = None

    @property
    def first(self) -> bool:
        """Whether this process is the first of all."""
        return self.group.rank == 0

    @property
    def leads(self) -> bool:
        """Whether this is a process of the first worker, which writes the checkpoints."""
        return self.group.rank < self._crew.size

    @property
    def workers(self) -> int:
        """How many workers train now."""
        return self.group.world // self._crew.size

    @property
    def silent(self) -> bool:
        """Whether the others forget this worker, for it leaves."""
        return self._silent_since is not None

    @property
    def silent_s(self) -> float:
        """For how long it has been silent."""
        return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    @property
    def leaves(self) -> bool:
        """Whether it leaves before the next step: it does so together, whichever of its processes was told to."""
        not_yet_joined = self.group.rendezvous == ""
        return self.parting or (not_yet_joined and self._crew.any(self._wishes.leave))

    def renew(self, version: int, *, finished: bool, parting: Callable[[], None]) -> bool:
        """Agrees with the others on who takes part in the next steps; False where it did not work out: call again.

        Args:
            version: of the state here.
            finished: whether nothing is left to train, and so nobody waited for.
            parting: called where this worker leaves instead, and may be the last that knows the state.
        """
        if not self.group.renew(-1 if self._stray else version, patient=not finished):
            if not self.parting and self._crew.any(self._wishes.leave):
                self.parting = True
                parting()
            time.sleep(_BACKOFF_S)
            return False
        self.must_renew = self._stray = False
        return True

    def flags(self, *, save: bool) -> Flag:
        """What this worker wants of the group; `save`: also a checkpoint."""
        flags = self._wishes.flags(renew=self.first and self.group.due(), save=save)
        return flags if self.group.holds() else flags | Flag.LOST

    def failed(self, reason: str, *, stray: bool) -> None:
        """The step did not count; `stray`: this worker's state was not that of the first."""
        self._stray = stray
        self.group.settle(ok=False, reason=reason)
        self.turn()

    def turn(self) -> None:
        """Agrees anew, whatever was decided before."""
        self.must_renew, self.parting = True, self.silent

    def decide(self, rows: Sequence[Row]) -> Decision:
        """What follows from all workers' rows of a committed step."""
        decision = Decision.of(rows, silence_s=SILENCE_S)
        first = self.group.rank - self._crew.rank
        if any(Flag.LEAVING in row.flags for row in rows[first : first + self._crew.size]):
            self._wishes.leave = True
            self.parting = decision.part
            if not decision.part and not self.silent:
                self.group.fall_silent()
                self._silent_since = time.monotonic()
        self.group.parting = decision.leaving
        self.must_renew = decision.renew
        return decision
