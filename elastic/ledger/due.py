# SPDX-License-Identifier: Apache-2.0
"""How often each sample is due in a training, where that is not once an epoch."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["due_counts", "due_text"]


def due_text(counts: NDArray[np.int64]) -> str:
    """How often each sample is due in all epochs together, as a manifest holds it: `due`."""
    return base64.b64encode(zlib.compress(counts.astype("<u4").tobytes())).decode()


def due_counts(text: str) -> NDArray[np.int64]:
    """What `due_text` wrote."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<u4").astype(np.int64)
