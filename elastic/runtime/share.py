"""A worker's part of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.sharding import bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Attempt", "Share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A try at a step, seen from one worker."""

    digest: str
    step: int
    epoch: int
    parent: str
    """Lineage of the state it begins from."""
    world: int
    rank: int
    count: int
    """Samples in the global batch."""
    mine: int
    """Samples in this worker's share."""


@dataclass(slots=True, kw_only=True)
class Share:
    """This worker's part of a global batch; or a part of that, where it does not fit its device at once."""

    ids: NDArray[np.int64]
    """Which samples to feed: indices into the dataset."""
    epoch: int
    """Counted from 0."""
    committed: bool = False
    """Whether the whole batch has counted; known after `Training.step` of the share's last part."""
    attempt: Attempt
    """What the ledger calls it."""
    last: bool
    """Whether the batch is its epoch's last."""
    opens: bool = True
    """Whether it is the share's first part."""
    closes: bool = True
    """Whether it is the share's last part."""

    def parts(self, count: int) -> Iterator[Share]:
        """The share in so many parts, whose samples differ by one at most."""
        if count == 1:
            yield self
            return
        for index in range(count):
            start, end = bounds(len(self.ids), index, count)
            yield replace(self, ids=self.ids[start:end], opens=index == 0, closes=index == count - 1)

    @property
    def ends_epoch(self) -> bool:
        """Whether the epoch's last batch has just been committed."""
        return self.last and self.committed
