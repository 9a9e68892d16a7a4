"""How a global batch is shared out among workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["bounds", "share"]


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
