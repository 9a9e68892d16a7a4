# SPDX-License-Identifier: Apache-2.0
"""Orders for datasets on disk: bijections that keep neighbours together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.sharding import Files, Sequential, blocks
from kfp_volcano.errors import SpecError

counts = st.lists(st.integers(0, 30), min_size=1, max_size=15).filter(sum)


def runs(values: list[int]) -> int:
    """How many runs of equal values follow each other."""
    return sum(1 for i, value in enumerate(values) if i == 0 or values[i - 1] != value)


@given(counts, st.integers(1, 4), st.booleans(), st.integers(0, 99), st.integers(0, 9))
def test_files_are_a_bijection_in_sets_of_few(
    counts: list[int], mixed: int, streams: bool, seed: int, epoch: int
) -> None:
    """Each record once; at most `mixed` files are open at a time, and none is opened twice."""
    order = Files(counts, mixed=mixed, streams=streams)
    ids = order.ids(seed, epoch, 0, order.size)
    assert sorted(ids.tolist()) == list(range(sum(counts)))
    files, _ = order.locate(ids)
    first = {file: int(np.argmax(files == file)) for file in set(files.tolist())}
    last = {file: len(files) - 1 - int(np.argmax(files[::-1] == file)) for file in first}
    assert all(sum(first[file] <= at <= last[file] for file in first) <= mixed for at in range(len(files)))


@given(counts, st.integers(1, 4), st.integers(0, 9), st.data())
def test_any_part_of_an_order_can_be_asked_for(counts: list[int], mixed: int, epoch: int, data: st.DataObject) -> None:
    """A piece is what the whole holds there, also from an order that was asked for nothing before."""
    whole = Files(counts, mixed=mixed).ids(7, epoch, 0, sum(counts)).tolist()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    assert Files(counts, mixed=mixed).ids(7, epoch, start, end).tolist() == whole[start:end]


@given(counts)
def test_a_sample_is_found_in_its_file(counts: list[int]) -> None:
    """Ids count the records of all files through."""
    files, records = Files(counts).locate(np.arange(sum(counts)))
    expected = [(file, record) for file, count in enumerate(counts) for record in range(count)]
    assert list(zip(files.tolist(), records.tolist(), strict=True)) == expected


@given(counts, st.integers(1, 4))
def test_streams_are_only_read_on(counts: list[int], mixed: int) -> None:
    """The records of a file come as they stand in it."""
    order = Files(counts, mixed=mixed, streams=True)
    files, records = order.locate(order.ids(3, 1, 0, order.size))
    for file in set(files.tolist()):
        assert records[files == file].tolist() == list(range(counts[file]))


def test_mixed_streams_alternate() -> None:
    """Records of files that are mixed spread over the set, in proportion to what each holds."""
    order = Files([10, 30], mixed=2, streams=True)
    files, _ = order.locate(order.ids(0, 0, 0, 40))
    assert [int((files[start : start + 4] == 0).sum()) for start in range(0, 40, 4)] == [1] * 10


def test_blocks_keep_neighbours_together_and_shuffle_them() -> None:
    """A block is read through before the next; both blocks and samples come in an order that each epoch changes."""
    order = blocks(1000, 100)
    one, other = (order.ids(0, epoch, 0, 1000) for epoch in (0, 1))
    assert runs((one // 100).tolist()) == 10
    assert (one // 100).tolist() != (other // 100).tolist()
    assert any(one[start : start + 100].tolist() != sorted(one[start : start + 100]) for start in range(0, 1000, 100))
    assert Sequential(5).ids(1, 2, 1, 4).tolist() == [1, 2, 3]


def test_these_orders_never_change() -> None:
    """A released order is a promise to every checkpoint."""
    assert Files([3, 0, 4, 2], mixed=2).ids(0, 0, 0, 9).tolist() == [4, 3, 8, 7, 5, 6, 1, 0, 2]
    assert blocks(7, 3).ids(1, 2, 0, 7).tolist() == [6, 4, 5, 3, 1, 0, 2]


def test_all_wrong_counts_are_named_at_once() -> None:
    """Files that cannot be are refused with every problem."""
    with pytest.raises(SpecError) as caught:
        Files([3, -1, 2.5], mixed=0)  # type: ignore[list-item]
    assert [problem.path for problem in caught.value.problems] == ["counts[1]", "counts[2]", "mixed"]
    with pytest.raises(SpecError, match="no record"):
        Files([0, 0])
    with pytest.raises(SpecError, match="block"):
        blocks(10, 0)
