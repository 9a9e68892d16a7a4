# SPDX-License-Identifier: Apache-2.0
"""A worker's part of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic import ledger
from kfp_volcano.elastic.sharding import bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from kfp_volcano.elastic.runtime.group import Group
    from kfp_volcano.elastic.runtime.state import State

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
    rendezvous: str
    """Name of the workers' process group; empty for a process that is alone."""
    counts: tuple[int, ...]
    """Samples in the share of each process, this one's among them."""
    samples: int
    """Committed before it."""

    @classmethod
    def of(cls, state: State, group: Group, *, processes: int, counts: tuple[int, ...]) -> Attempt:
        """The try at the step that follows a state by a group's workers."""
        return cls(
            digest=ledger.attempt_digest(state.lineage, group.rendezvous, state.steps),
            step=state.steps,
            epoch=state.cursor.epoch,
            parent=state.lineage,
            world=group.world,
            processes=processes,
            rank=group.rank,
            rendezvous=group.rendezvous,
            counts=counts,
            samples=state.samples,
        )

    @property
    def count(self) -> int:
        """Samples in the global batch."""
        return sum(self.counts)

    @property
    def mine(self) -> int:
        """Samples in this process' share."""
        return self.counts[self.rank]

    @property
    def workers(self) -> int:
        """How many workers take part."""
        return self.world // self.processes


@dataclass(slots=True, kw_only=True)
class Share:
    """This worker's part of a global batch; or a part of that, where it does not fit its device at once."""

    ids: NDArray[np.int64]
    """Which samples to feed: indices into the dataset."""
    positions: NDArray[np.int64]
    """Where these stand in the order of all epochs: how many samples come before each. Two samples that are fed never
    share a position, though an order may hold an id several times."""
    epoch: int
    """Counted from 0."""
    committed: bool = False
    """Whether the whole batch has counted; known after `Training.step` of the share's last part."""
    attempt: Attempt
    """What the ledger calls it."""
    last: bool
    """Whether the batch is its epoch's last."""
    padding: int = 0
    """How many of `ids`, the last ones, are copies that must not count: see `mean`."""
    counts: bool = True
    """Whether its samples count. A process of a sharded model that has none feeds one that does not, for its siblings
    need its passes."""
    opens: bool = True
    """Whether it is the share's first part."""
    closes: bool = True
    """Whether it is the share's last part."""

    def parts(self, count: int) -> Iterator[Share]:
        """The share in so many parts, whose samples differ by one at most."""
        if count == 1:
            yield self
            return
        real = len(self.ids) - self.padding
        for index in range(count):
            start, end = bounds(len(self.ids), index, count)
            counts = self.counts and start < min(end, real)
            piece = slice(start, end) if start < end else slice(1)
            yield replace(
                self,
                ids=self.ids[piece],
                positions=self.positions[piece],
                padding=max(0, end - real) if counts else 0,
                counts=counts,
                opens=index == 0,
                closes=index == count - 1,
            )

    @property
    def fed(self) -> int:
        """How many of `ids` count."""
        return len(self.ids) - self.padding if self.counts else 0

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
