"""Which samples belong to which step, and to whom: a function of the plan alone, never of past sizes.

The order of an epoch is a bijection of (seed, epoch). Global batch t of an epoch is positions [t·batch, (t+1)·batch)
of that order whatever the number of workers, and is shared out among those present. So the whole state of the data is
one number, the count of committed steps, and a run that resizes feeds the same batches as one that does not
(the law of MosaicML StreamingDataset's elastic determinism, without its divisibility rules).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Plan", "bounds", "order", "share"]


@lru_cache(maxsize=2)
def order(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """The samples 0..size-1 in the order of an epoch; read-only.

    Sorted by raw PCG64 output, which NumPy keeps stable between versions (NEP 19) as it does not for
    `Generator.permutation`: a run taken up again after an upgrade keeps its order.
    """
    keys = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(size)
    indices = np.argsort(keys, kind="stable").astype(np.int64, copy=False)
    indices.setflags(write=False)
    return indices


def bounds(count: int, rank: int, world: int) -> tuple[int, int]:
    """Where the share of `rank` among `world` begins and ends in a batch of `count` samples.

    Largest remainder of equal claims: shares differ by at most one, the lower ranks hold the larger ones.
    """
    base, extra = divmod(count, world)
    start = rank * base + min(rank, extra)
    return start, start + base + (1 if rank < extra else 0)


def share(batch: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """A copy of the part of a global batch that belongs to `rank`; empty where there are more workers than samples."""
    start, end = bounds(len(batch), rank, world)
    return batch[start:end].copy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All global batches of a training. Steps count from 0 over all epochs; the last batch of an epoch may be smaller.

    Raises SpecError, with every problem, where size, batch or epochs are below 1 or the seed below 0.
    """

    size: int
    """Samples in the dataset."""
    batch: int
    """Samples in a global batch."""
    epochs: int
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"size": 1, "batch": 1, "epochs": 1, "seed": 0}
        problems = [
            Problem(name, f"{value!r} is not a whole number of at least {minimum}")
            for name, minimum in least.items()
            if not isinstance(value := getattr(self, name), int) or isinstance(value, bool) or value < minimum
        ]
        if problems:
            raise SpecError(problems, source="training plan")

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in an epoch."""
        return -(-self.size // self.batch)

    @property
    def steps(self) -> int:
        """Global batches in the whole training."""
        return self.steps_per_epoch * self.epochs

    def epoch(self, step: int) -> int:
        """The epoch, from 0, that a step belongs to."""
        return step // self.steps_per_epoch

    def ends_epoch(self, step: int) -> bool:
        """Whether a step's batch is the last one of its epoch."""
        return (step + 1) % self.steps_per_epoch == 0

    def samples(self, steps: int) -> int:
        """How many samples the first `steps` batches hold: the cursor, over all epochs."""
        epoch, index = divmod(steps, self.steps_per_epoch)
        return epoch * self.size + min(index * self.batch, self.size)

    def ids(self, step: int) -> NDArray[np.int64]:
        """The samples of a step's global batch, read-only."""
        epoch, index = divmod(step, self.steps_per_epoch)
        return order(self.seed, epoch, self.size)[index * self.batch : (index + 1) * self.batch]
