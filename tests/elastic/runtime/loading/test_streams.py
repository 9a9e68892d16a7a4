# SPDX-License-Identifier: Apache-2.0
"""Files that can only be read on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

from kfp_volcano.elastic.runtime import Streams, Training
from kfp_volcano.elastic.sharding import Files
from kfp_volcano.errors import SpecError

COUNTS = [5, 0, 7, 3, 6]


class File(IterableDataset[int]):
    """Its records are hundreds of its number and their places."""

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count

    def __iter__(self) -> Iterator[int]:
        return iter(range(100 * self.number, 100 * self.number + self.count))


def opened(counts: list[int], log: list[int]):
    """Opens files of so many records, and notes which."""

    def open_file(number: int) -> File:
        log.append(number)
        return File(number, counts[number])

    return open_file


def test_each_file_is_read_once_an_epoch() -> None:
    """By one reader that feeds everything: no file is opened again within an epoch."""
    files, log = Files(COUNTS, mixed=2, streams=True), []
    streams = Streams(files, opened(COUNTS, log))
    for epoch in range(2):
        log.clear()
        ids = files.ids(0, epoch, 0, files.size)
        which, record = files.locate(ids)
        assert [streams[sample] for sample in ids.tolist()] == (100 * which + record).tolist()
        assert sorted(log) == [0, 2, 3, 4]


def test_any_record_can_be_had() -> None:
    """What was passed is read anew from the file's beginning."""
    files = Files(COUNTS, mixed=2, streams=True)
    streams = Streams(files, opened(COUNTS, []))
    for sample in np.random.default_rng(0).integers(0, files.samples, 200).tolist():
        (which,), (record,) = files.locate(np.array([sample]))
        assert streams[sample] == 100 * which + record


@pytest.mark.parametrize(("really", "what"), [(6, "has 6"), (8, "has more")])
def test_a_file_of_another_length_is_found(really: int, what: str) -> None:
    """It would otherwise be a record that nobody feeds, or that is fed by another's number."""
    streams = Streams(Files(COUNTS, streams=True), opened([5, 0, really, 3, 6], []))
    with pytest.raises(SpecError, match=rf"counts\[2\]: the file was said to have 7 records, and {what}"):
        streams[5 + 6]


def test_files_that_are_shuffled_within_are_refused() -> None:
    """Each record would be read from its file's beginning."""
    with pytest.raises(SpecError, match="streams=True"):
        Streams(Files(COUNTS), opened(COUNTS, []))


def training(**given) -> Training:
    """Of a model of one weight."""
    model = torch.nn.Linear(1, 1)
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.0), batch=4, **given)


def test_streams_are_fed_once_each() -> None:
    """Through a loader's processes."""
    files = Files(COUNTS, mixed=2, streams=True)
    running = training(epochs=2, order=files)
    found = []
    for _, records in running.loader(Streams(files, opened(COUNTS, []))):
        running.step(running._state.model(records[:, None].float()).mean())
        found += records.tolist()
    each = [100 * number + place for number, count in enumerate(COUNTS) for place in range(count)]
    assert sorted(found) == sorted(each * 2)


def test_what_has_no_numbers_is_refused() -> None:
    """With what to do instead; and files in another order than the training's."""
    with pytest.raises(SpecError, match="can only be read from its beginning on"):
        training(size=5, epochs=1).loader(File(0, 5))
    with pytest.raises(SpecError, match="pass order=files"):
        training(size=21, epochs=1).loader(Streams(Files(COUNTS, streams=True), opened(COUNTS, [])))
