# SPDX-License-Identifier: Apache-2.0
"""What a process is given of the next global batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kfp_volcano.elastic.runtime.share import Attempt, Share
from kfp_volcano.elastic.sharding import apportion, cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.elastic.runtime.membership import Membership
    from kfp_volcano.elastic.runtime.state import State
    from kfp_volcano.elastic.scaling.sizing import Sizing
    from kfp_volcano.elastic.sharding import Cursor

__all__ = ["Dealer"]


class Dealer:
    """Cuts the batch that follows a state among the processes of a group: each comes to the same cuts by itself.

    Args:
        state: What all share.
        sizing: How large a batch is, and what of it fits a worker at once.
        membership: Who trains.
        sharding: `uniform`, or `proportional` to the speeds that all have seen.
        processes: Of each worker.
        flat: Whether a process without samples has nothing to do; where the model is sharded it has to take part in its
            siblings' passes.
    """

    def __init__(
        self, state: State, sizing: Sizing, membership: Membership, sharding: str, processes: int, *, flat: bool
    ) -> None:
        self._state, self._sizing, self._membership = state, sizing, membership
        self._proportional = sharding == "proportional"
        self._processes, self._flat = processes, flat

    def deal(self) -> Share:
        """This process' share of the next batch."""
        return self._share(self._state.cursor)

    def parts(self, share: Share) -> Iterator[Share]:
        """The share in the parts in which it is fed."""
        # The processes of a sharded model need each other's passes, and so equally many.
        samples = len(share.ids) if self._flat else max(share.attempt.counts)
        return share.parts(self._sizing.parts(samples * self._processes))

    def ahead(self, steps: int) -> Iterator[Share]:
        """The parts that come within so many steps, the next one first, if each commits and nobody comes or goes.

        Of all but the next step `attempt` is not what it will be.
        """
        state = self._state
        cursor = state.cursor
        for _ in range(steps):
            cursor = self._passed(cursor)
            if state.plan.finished(cursor):
                return
            share = self._share(cursor)
            if len(share.ids):
                yield from self.parts(share)
            cursor = state.plan.after(cursor, share.attempt.count)

    def _share(self, cursor: Cursor) -> Share:
        state, plan, group = self._state, self._state.plan, self._membership.group

        def shares(count: int) -> list[int]:
            if self._proportional:
                return state.pace.shares(count, rendezvous=group.rendezvous, world=group.world)
            return apportion(count, [1.0] * group.world)

        batch = state.watch.skips.room(cursor, self._sizing.batch(group.world // self._processes))
        part = cut(plan, cursor, batch, shares, group.rank)
        ids, positions, counts = part.ids(plan), part.positions(plan), part.counts[group.rank] > 0
        if not self._flat and not counts:
            ids, positions = plan.ids(cursor, 1), np.array([plan.samples(cursor)])
        return Share(
            ids=ids.copy(),
            positions=positions,
            padding=part.padding,
            counts=counts,
            epoch=part.epoch,
            attempt=Attempt.of(state, group, processes=self._processes, counts=part.counts),
            last=part.last,
        )

    def _passed(self, cursor: Cursor) -> Cursor:
        """Behind what is passed over there."""
        while not self._state.plan.finished(cursor) and (count := self._state.watch.skips.at(cursor)):
            cursor = self._state.plan.after(cursor, self._state.plan.count(cursor, count))
        return cursor
