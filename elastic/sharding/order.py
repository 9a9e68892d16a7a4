# SPDX-License-Identifier: Apache-2.0
"""In which order an epoch feeds its samples."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["order"]


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
