# SPDX-License-Identifier: Apache-2.0
"""How a global batch is shared out among workers: equally, or in proportion to claims."""

from __future__ import annotations

from itertools import accumulate
from math import floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["apportion", "bounds", "edges", "quotas", "share"]


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


def quotas(count: int, claims: Sequence[float]) -> list[float]:
    """What each of these positive claims would have of `count` samples if samples could be cut.

    At least 1 each where there are enough samples; what that takes is missing from the others in proportion.
    """
    least = 1.0 if count >= len(claims) else 0.0
    raised: set[int] = set()
    while True:
        rest = count - least * len(raised)
        total = sum(claim for index, claim in enumerate(claims) if index not in raised)
        found = [least if index in raised else rest * claim / total for index, claim in enumerate(claims)]
        below = {index for index, quota in enumerate(found) if quota < least}
        if not below:
            return found
        raised |= below


def apportion(count: int, claims: Sequence[float]) -> list[int]:
    """Whole samples for each of these positive claims: `quotas` by largest remainder (Hamilton's method).

    Each differs from its quota by less than 1, their sum is `count`; equal remainders go to the lower ranks.
    """
    exact = quotas(count, claims)
    shares = [floor(quota) for quota in exact]
    by_remainder = sorted(range(len(claims)), key=lambda index: (shares[index] - exact[index], index))
    for index in by_remainder[: count - sum(shares)]:
        shares[index] += 1
    return shares


def edges(shares: Sequence[int], rank: int) -> tuple[int, int]:
    """Where the share of `rank` begins and ends in a batch that is shared out like this."""
    ends = list(accumulate(shares, initial=0))
    return ends[rank], ends[rank + 1]
