# SPDX-License-Identifier: Apache-2.0
"""Samples come out of a packet as they went in."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from kfp_volcano.elastic.runtime.loading.packing import pack


class Pair(NamedTuple):
    """A named tuple."""

    left: Any
    right: Any


SAMPLES = [
    torch.arange(6).reshape(2, 3).T,
    (torch.tensor(1.5), 3),
    {"x": np.arange(4, dtype=np.float32)[::-1], "name": "a", "none": None},
    Pair([torch.zeros(0, 2)], np.array(["text"])),
    torch.ones(2, dtype=torch.bool),
    np.frombuffer(b"\x01\x02", dtype=np.uint8),
    torch.eye(2).to_sparse(),
]


def equal(one: Any, other: Any) -> bool:
    """Whether they are of the same types and values."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        return (
            one.dtype == other.dtype and bool((one.to_dense() == other.to_dense()).all()) and one.shape == other.shape
        )
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def test_samples_are_what_they_were() -> None:
    """Of any shapes and containers, through a pickle."""
    assert equal(pickle.loads(pickle.dumps(pack(SAMPLES))).unpack(), SAMPLES)


def test_there_is_one_piece_of_memory_for_each_kind_of_number() -> None:
    """However many samples there are: each piece is a file that a process holds open."""
    packed = pack([(torch.rand(3), torch.tensor(index), np.zeros(2)) for index in range(100)])
    assert set(packed.numbers) == {torch.float32, torch.int64, torch.float64}
    assert pack([]).unpack() == []
    assert equal(pack([torch.zeros(0), torch.zeros(0)]).unpack(), [torch.zeros(0), torch.zeros(0)])


def test_an_array_that_cannot_be_written_to_is_no_reason_to_warn(recwarn: pytest.WarningsRecorder) -> None:
    """Arrays from files are often so."""
    pack([np.frombuffer(b"\x01\x02", dtype=np.uint8)])
    assert not recwarn.list
