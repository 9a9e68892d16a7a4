# SPDX-License-Identifier: Apache-2.0
"""Files that can only be read on, as a dataset whose samples have numbers."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kfp_volcano.elastic.sharding import Files

__all__ = ["Streams"]

_END = object()


class Streams:
    """Records of files (shards, tables, archives) that have no index: a record's number is its place in its file.

    What makes each record be used exactly once is that `open` gives the same records in the same order each time it is
    called for a file, in any process. Whoever feeds a record reads over those before it, which others feed; so each
    worker reads every file once an epoch, as do each of a loader's processes: few of these, and records that are cheap
    to read over (decode them in `collate`, or in the training) are what this is good for.

    Args:
        files: How many records each file has, in the order in which they are read (`streams=True`).
        open: Gives a file's records from the first one on, by the file's number; an IterableDataset will do.

    Raises:
        SpecError: files in whose order records are shuffled within a file; and, from a sample, a file that does not
            have as many records as was said.
    """

    def __init__(self, files: Files, open: Callable[[int], Iterable[Any]]) -> None:  # noqa: A002 - what it does
        if not files.streams:
            problem = Problem(
                "files", "shuffles the records within each file, which is then read anew for each", "pass streams=True"
            )
            raise SpecError([problem], source="streams")
        self.files, self._open = files, open
        self._readers: OrderedDict[int, _Reader] = OrderedDict()

    def __len__(self) -> int:
        return self.files.samples

    def __getitem__(self, sample: int) -> Any:
        (file,), (record,) = self.files.locate(np.array([sample]))
        reader = self._readers.pop(int(file), None)
        if reader is None or reader.at > record:
            reader = _Reader(int(file), self.files.records(int(file)), self._open)
        self._readers[int(file)] = reader
        while len(self._readers) > 2 * self.files.mixed:  # those of two sets, where one set follows another
            self._readers.popitem(last=False)
        return reader.read(int(record))


class _Reader:
    """An open file."""

    def __init__(self, file: int, count: int, open_file: Callable[[int], Iterable[Any]]) -> None:
        self._file, self._count = file, count
        self._records = iter(open_file(file))
        self.at = 0
        """The record that is read next."""

    def read(self, record: int) -> Any:
        """That record, which has not been passed."""
        found: Any = _END
        while self.at <= record:
            found = next(self._records, _END)
            if found is _END:
                raise self._wrong(f"has {self.at}")
            self.at += 1
        if self.at == self._count and next(self._records, _END) is not _END:
            raise self._wrong("has more")
        return found

    def _wrong(self, what: str) -> SpecError:
        problem = Problem(f"counts[{self._file}]", f"the file was said to have {self._count} records, and {what}")
        return SpecError([problem], source="streams")
