# SPDX-License-Identifier: Apache-2.0
"""A worker's part of a global batch, by positions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from kfp_volcano.elastic.sharding.plan import Cursor, Plan

__all__ = ["Cut", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Positions start..end-1 of an epoch's order."""

    epoch: int
    start: int
    end: int
    padding: int
    """Copies without weight that come after them; none where there is no sample."""
    counts: tuple[int, ...]
    """Samples in the share of each rank, copies not counted."""
    last: bool
    """Whether the batch is its epoch's last."""

    def ids(self, plan: Plan) -> NDArray[np.int64]:
        """The samples to feed, then the copies: of these samples, round and round."""
        return self._filled(plan.between(self.epoch, self.start, self.end))

    def positions(self, plan: Plan) -> NDArray[np.int64]:
        """Where these stand in the order of all epochs: how many samples come before each."""
        before = self.epoch * plan.size
        return self._filled(np.arange(before + self.start, before + self.end, dtype=np.int64))

    def _filled(self, found: NDArray[np.int64]) -> NDArray[np.int64]:
        return found if not self.padding else found.take(range(len(found) + self.padding), mode="wrap")


def cut(plan: Plan, cursor: Cursor, batch: int, shares: Callable[[int], Sequence[int]], rank: int) -> Cut:
    """The part of `rank` in the batch that comes after a cursor.

    Args:
        plan: The training's.
        cursor: How far it has come.
        batch: Samples in a global batch.
        shares: How so many samples are shared out: how many of them each rank has.
        rank: Of the worker.
    """
    count = plan.count(cursor, batch)
    widths = shares(plan.width(cursor, batch))
    ends = [min(end, count) for end in accumulate(widths, initial=0)]
    counts = tuple(end - start for start, end in pairwise(ends))
    return Cut(
        epoch=cursor.epoch,
        start=cursor.position + ends[rank],
        end=cursor.position + ends[rank + 1],
        padding=widths[rank] - counts[rank] if counts[rank] else 0,
        counts=counts,
        last=plan.after(cursor, count).epoch > cursor.epoch,
    )
