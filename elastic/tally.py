"""How often samples were fed, against how often each was due."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

import numpy as np

from kfp_volcano.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["due_text", "tally"]


def due_text(counts: NDArray[np.int64]) -> str:
    """How often each sample is due in a whole training, as a manifest holds it: `due`."""
    return base64.b64encode(zlib.compress(counts.astype("<u4").tobytes())).decode()


def tally(
    fed: Mapping[int, Sequence[NDArray[np.int64]]], size: int, epochs: int, due: str | None
) -> tuple[int, int, list[Problem]]:
    """The numbers of duplicates and of missing samples, and what is wrong with the ids.

    Args:
        fed: The ids that each epoch fed.
        size: Samples in the dataset, each due once in each epoch; not used where `due` says otherwise.
        epochs: How many there are to be.
        due: `due_text` of how often each sample is due in all epochs together.
    """
    wanted = (
        None if due is None else np.frombuffer(zlib.decompress(base64.b64decode(due)), dtype="<u4").astype(np.int64)
    )
    samples = size if wanted is None else len(wanted)
    duplicates, missing, problems, total = 0, 0, [], np.zeros(samples, dtype=np.int64)
    for epoch, parts in fed.items():
        ids = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        known = ids[(ids >= 0) & (ids < samples)]
        if len(known) < len(ids):
            problems.append(Problem(f"epoch {epoch}", f"ids outside 0..{samples - 1} were fed"))
        counts = np.bincount(known, minlength=samples)
        total += counts
        if wanted is None:
            duplicates += int(np.maximum(counts - 1, 0).sum())
            missing += int((counts == 0).sum()) if epoch < epochs else 0
    if wanted is not None:
        duplicates = int(np.maximum(total - wanted, 0).sum())
        missing = int(np.maximum(wanted - total, 0).sum())
    return duplicates, missing, problems
