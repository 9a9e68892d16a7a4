# SPDX-License-Identifier: Apache-2.0
"""Samples on their way from one process to another: all their numbers in one piece of shared memory for each dtype.

PyTorch sends each tensor in shared memory of its own, behind an open file. A few thousand samples that are kept would
be as many files, which is more than a process may open.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

__all__ = ["Packed", "pack"]

_ARRAYS = {
    np.dtype(kind)
    for kind in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64")
}
"""What both libraries have."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor's numbers are."""

    dtype: torch.dtype
    start: int
    shape: tuple[int, ...]
    array: bool
    """Whether it was an array of NumPy's."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What `pack` made."""

    samples: list[Any]
    """With places where tensors were."""
    numbers: dict[torch.dtype, torch.Tensor]

    def unpack(self) -> list[Any]:
        """The samples; their tensors are views of the pieces."""
        return [self._full(sample) for sample in self.samples]

    def _full(self, value: Any) -> Any:
        if isinstance(value, _Place):
            end = value.start + prod(value.shape)
            found = self.numbers[value.dtype][value.start : end].view(value.shape)
            return found.numpy() if value.array else found
        return _within(value, self._full)


def pack(samples: list[Any]) -> Packed:
    """Takes the tensors and arrays out of tuples, lists and dicts; anything else stays in them as it is."""
    parts: dict[torch.dtype, list[torch.Tensor]] = {}
    lengths: dict[torch.dtype, int] = {}

    def taken(value: Any) -> Any:
        array = type(value) is np.ndarray and value.dtype in _ARRAYS
        if not array and not _plain(value):
            return _within(value, taken)
        # What PyTorch cannot share, or warns of: other strides, what is not writable.
        tensor = torch.from_numpy(np.require(value, requirements=["C", "W"])) if array else value
        start = lengths.get(tensor.dtype, 0)
        lengths[tensor.dtype] = start + tensor.numel()
        parts.setdefault(tensor.dtype, []).append(tensor.reshape(-1))
        return _Place(tensor.dtype, start, tuple(tensor.shape), array)

    found = [taken(sample) for sample in samples]
    return Packed(found, {dtype: _joined(each) for dtype, each in parts.items()})


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    if len({part.numel() for part in parts}) > 1:
        return torch.cat(parts)
    joined: torch.Tensor = default_collate(parts)  # into shared memory at once, in a process of a DataLoader
    return joined.view(-1)


def _plain(value: Any) -> bool:
    return type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"


def _within(value: Any, change: Any) -> Any:
    """The same container of changed values."""
    if type(value) is dict:
        return {key: change(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(change(each) for each in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(change(each) for each in value))
    return value
