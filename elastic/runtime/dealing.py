"""What a process is given of the next global batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.runtime.share import Attempt, Share
from kfp_volcano.elastic.sharding import apportion, cut

if TYPE_CHECKING:
    from kfp_volcano.elastic.runtime.group import Group
    from kfp_volcano.elastic.runtime.state import State

__all__ = ["Dealer"]


class Dealer:
    """Cuts the batch that follows a state among the processes of a group: each comes to the same cuts by itself.

    Args:
        state: What all share.
        sharding: `uniform`, or `proportional` to the speeds that all have seen.
        processes: Of each worker.
        flat: Whether a process without samples has nothing to do; where the model is sharded it has to take part in its
            siblings' passes.
    """

    def __init__(self, state: State, sharding: str, processes: int, *, flat: bool) -> None:
        self._state, self._proportional = state, sharding == "proportional"
        self._processes, self._flat = processes, flat

    def deal(self, group: Group, batch: int) -> Share:
        """This process' share of the next batch, of at most so many samples."""
        state, plan = self._state, self._state.plan

        def shares(count: int) -> list[int]:
            if self._proportional:
                return state.pace.shares(count, rendezvous=group.rendezvous, world=group.world)
            return apportion(count, [1.0] * group.world)

        part = cut(plan, state.cursor, batch, shares, group.rank)
        ids = part.ids(plan)
        return Share(
            ids=(ids if self._flat or len(ids) else plan.ids(state.cursor, 1)).copy(),
            padding=part.padding,
            counts=len(ids) > 0,
            epoch=part.epoch,
            attempt=Attempt.of(state, group, processes=self._processes, counts=part.counts),
            last=part.last,
        )
