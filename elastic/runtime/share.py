"""A worker's part of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Attempt", "Share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A try at a step, seen from one process."""

    digest: str
    step: int
    epoch: int
    parent: str
    """Lineage of the state it begins from."""
    world: int
    """Processes of all workers."""
    processes: int = 1
    """Processes of each worker."""
    rank: int
    count: int
    """Samples in the global batch."""
    mine: int
    """Samples in this process' share."""

    @property
    def workers(self) -> int:
        """How many workers take part."""
        return self.world // self.processes


@dataclass(slots=True, kw_only=True)
class Share:
    """This worker's part of a global batch."""

    ids: NDArray[np.int64]
    """Which samples to feed: indices into the dataset. One that counts nothing where a process of a sharded model has
    none, for its siblings need its passes."""
    epoch: int
    """Counted from 0."""
    committed: bool = False
    """Whether the whole batch has counted; known after `Training.step`."""
    attempt: Attempt
    """What the ledger calls it."""
    last: bool
    """Whether the batch is its epoch's last."""

    @property
    def ends_epoch(self) -> bool:
        """Whether the epoch's last batch has just been committed."""
        return self.last and self.committed
