# SPDX-License-Identifier: Apache-2.0
"""The order in which epochs feed the samples of a dataset: a function of (seed, epoch), asked for any positions."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kfp_volcano.elastic.sharding.order import order
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Files", "Order", "Sequential", "Shuffled", "blocks", "samples_of"]


class Order(Protocol):
    """Which sample stands at which position of an epoch."""

    @property
    def size(self) -> int:
        """Positions in an epoch."""

    @property
    def samples(self) -> int:
        """Samples in the dataset; ids are 0..samples-1."""

    def ids(self, seed: int, epoch: int, start: int, end: int) -> NDArray[np.int64]:
        """The samples at positions start..end-1 of an epoch, which are all within it; read-only."""

    def due(self, seed: int, epochs: int) -> NDArray[np.int64] | None:
        """How often each sample is fed in so many epochs together; None: once in each."""


class Shuffled:
    """Every sample once an epoch, any before any other. Holds the order of two epochs, 8 bytes a sample each."""

    def __init__(self, size: int) -> None:
        self.size = self.samples = size

    def ids(self, seed: int, epoch: int, start: int, end: int) -> NDArray[np.int64]:
        """See Order."""
        return order(seed, epoch, self.size)[start:end]

    def due(self, seed: int, epochs: int) -> None:
        """See Order."""


class Sequential:
    """Every sample once an epoch, as they stand in the dataset: for what was shuffled when it was written."""

    def __init__(self, size: int) -> None:
        self.size = self.samples = size

    def ids(self, seed: int, epoch: int, start: int, end: int) -> NDArray[np.int64]:  # noqa: ARG002 - see Order
        """See Order."""
        return np.arange(start, end, dtype=np.int64)

    def due(self, seed: int, epochs: int) -> None:
        """See Order."""


class Files:
    """Every record of every file once an epoch, with few files open at a time.

    Files come in shuffled order, `mixed` at a time, and the records of these are shuffled among each other before the
    next ones are opened. Ids count the records of all files, in the order the files are given. Holds as much as two
    sets of mixed files have records.

    Args:
        counts: records in each file; a file may be empty.
        mixed: how many files are mixed at a time. More are better shuffled, fewer are read with less seeking.
        streams: whether a file's records are fed in the order in which they stand, for what can only be read on; those
            of mixed files still alternate.

    Raises:
        SpecError: counts that are no whole numbers, or all 0; `mixed` below 1.
    """

    def __init__(self, counts: Sequence[int], *, mixed: int = 1, streams: bool = False) -> None:
        problems = [
            Problem(f"counts[{index}]", f"{count!r} is not a whole number of at least 0")
            for index, count in enumerate(counts)
            if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0
        ]
        if not problems and not sum(counts):
            problems.append(Problem("counts", "there is no record in any file"))
        if mixed < 1:
            problems.append(Problem("mixed", f"{mixed!r} is not a whole number of at least 1"))
        if problems:
            raise SpecError(problems, source="order of files")
        self._counts = np.asarray(counts, dtype=np.int64)
        self._ends = np.cumsum(self._counts)
        self.mixed, self.streams = mixed, streams
        self.size = self.samples = int(self._ends[-1])
        self._layout = lru_cache(maxsize=2)(self._lay_out)
        self._set = lru_cache(maxsize=2)(self._shuffle)

    def records(self, file: int) -> int:
        """How many records a file has."""
        return int(self._counts[file])

    def locate(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The files that samples are in, and their records' indices there."""
        files = np.searchsorted(self._ends, ids, side="right")
        return files, ids - (self._ends[files] - self._counts[files])

    def ids(self, seed: int, epoch: int, start: int, end: int) -> NDArray[np.int64]:
        """See Order."""
        _, ends = self._layout(seed, epoch)
        parts = []
        while start < end:
            index = int(np.searchsorted(ends, start, side="right"))
            begins = int(ends[index - 1]) if index else 0
            stop = min(end, int(ends[index]))
            parts.append(self._set(seed, epoch, index)[start - begins : stop - begins])
            start = stop
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0, dtype=np.int64)])

    def due(self, seed: int, epochs: int) -> None:
        """See Order."""

    def _lay_out(self, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The files in their order, and the position at which each set of mixed ones ends."""
        files = order(seed, epoch, len(self._counts))
        ends = np.cumsum(self._counts[files])
        return files, np.append(ends[self.mixed - 1 : -1 : self.mixed], ends[-1])

    def _shuffle(self, seed: int, epoch: int, index: int) -> NDArray[np.int64]:
        """The samples of a set of mixed files, in their order."""
        files, _ = self._layout(seed, epoch)
        chosen = files[index * self.mixed : (index + 1) * self.mixed]
        ids = np.concatenate([np.arange(self._ends[f] - self._counts[f], self._ends[f]) for f in chosen])
        if self.streams:
            # The k-th of n records of a file where it would stand if they were spread evenly over the set.
            keys = np.concatenate([(np.arange(self._counts[f]) + 0.5) / max(1, self._counts[f]) for f in chosen])
        else:
            keys = np.random.PCG64(np.random.SeedSequence([seed, epoch, index])).random_raw(len(ids))
        found = ids[np.argsort(keys, kind="stable")]
        found.setflags(write=False)
        return found


def blocks(size: int, block: int, *, mixed: int = 1) -> Files:
    """An order for a dataset on a disk that reads neighbours faster: shuffled in blocks of neighbouring samples."""
    if block < 1:
        raise SpecError([Problem("block", f"{block!r} is not a whole number of at least 1")], source="order of blocks")
    whole, rest = divmod(size, block)
    return Files([block] * whole + [rest] * (rest > 0), mixed=mixed)


def samples_of(size: int | None, order: Order | None) -> int:
    """Samples in an epoch: `size`, or those of the order where only that is given.

    Raises SpecError where nobody says it.
    """
    if size is None and order is None:
        problem = Problem("size", "nobody says how many samples there are", "pass size= or order=")
        raise SpecError([problem], source="training plan")
    return order.size if size is None and order is not None else int(size or 0)
