"""A worker's part of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic import ledger

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kfp_volcano.elastic.runtime.group import Group
    from kfp_volcano.elastic.runtime.state import State

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
    samples: int
    """Committed before it."""

    @classmethod
    def of(cls, state: State, group: Group, count: int, mine: int) -> Attempt:
        """The try at the step that follows a state by a group's workers."""
        return cls(
            digest=ledger.attempt_digest(state.lineage, group.rendezvous, state.steps),
            step=state.steps,
            epoch=state.cursor.epoch,
            parent=state.lineage,
            world=group.world,
            rank=group.rank,
            count=count,
            mine=mine,
            samples=state.samples,
        )


@dataclass(slots=True, kw_only=True)
class Share:
    """This worker's part of a global batch."""

    ids: NDArray[np.int64]
    """Which samples to feed: indices into the dataset."""
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
