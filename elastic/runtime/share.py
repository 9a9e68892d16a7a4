"""A worker's part of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch
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
    rendezvous: str
    """Name of the workers' process group; empty for one that is alone."""
    counts: tuple[int, ...]
    """Samples in the share of each rank, this worker's among them."""

    @property
    def count(self) -> int:
        """Samples in the global batch."""
        return sum(self.counts)

    @property
    def mine(self) -> int:
        """Samples in this worker's share."""
        return self.counts[self.rank]


@dataclass(slots=True, kw_only=True)
class Share:
    """This worker's part of a global batch."""

    ids: NDArray[np.int64]
    """Which samples to feed: indices into the dataset."""
    padding: int = 0
    """How many of them, the last ones, are copies that must not count: see `mean`."""
    epoch: int
    """Counted from 0."""
    committed: bool = False
    """Whether the whole batch has counted; known after `Training.step`."""
    attempt: Attempt
    """What the ledger calls it."""
    last: bool
    """Whether the batch is its epoch's last."""

    def mean(self, losses: torch.Tensor) -> torch.Tensor:
        """The mean of the losses of the share's samples, the copies of `last="pad"` left out: what `step` is given.

        Args:
            losses: one for each of `ids`, as criteria with `reduction="none"` give them.
        """
        return losses[: len(self.ids) - self.padding].mean()

    @property
    def ends_epoch(self) -> bool:
        """Whether the epoch's last batch has just been committed."""
        return self.last and self.committed
