# SPDX-License-Identifier: Apache-2.0
"""What a process has of tensors that are sharded over its worker, apart from all else in a state.

A checkpoint has the state in one file, with empty tensors where these are, and their pieces in others (`dcp`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Piece", "Place", "parted", "put_back"]

Place = tuple[Any, ...]
"""Keys and indices that lead to a value in a state."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Of a sharded tensor, on the CPU."""

    tensor: torch.Tensor
    whole: torch.Size
    """Shape of the whole tensor."""
    offsets: torch.Size
    """Where in it this piece begins."""


def parted(state: Any, place: Place = ()) -> tuple[Any, dict[str, Piece]]:
    """A state with an empty tensor (on the device `meta`) in place of each piece, and the pieces by name."""
    if isinstance(state, Piece):
        return torch.empty(state.whole, dtype=state.tensor.dtype, device="meta"), {_name(place): state}
    if isinstance(state, dict):
        items = {key: parted(item, (*place, key)) for key, item in state.items()}
        return {key: frame for key, (frame, _) in items.items()}, _merged(pieces for _, pieces in items.values())
    if isinstance(state, (list, tuple)):
        parts = [parted(item, (*place, index)) for index, item in enumerate(state)]
        return type(state)(frame for frame, _ in parts), _merged(pieces for _, pieces in parts)
    return state, {}


def put_back(
    frame: Any, make: Callable[[Place, torch.Tensor], torch.Tensor], made: dict[str, torch.Tensor], place: Place = ()
) -> Any:
    """What `parted` gave, with other tensors in place of the empty ones.

    Args:
        frame: the state.
        make: gives the tensor for a place where an empty one is.
        made: takes these by name.
        place: where the frame stands in the state.
    """
    if isinstance(frame, torch.Tensor) and frame.device.type == "meta":
        made[_name(place)] = tensor = make(place, frame)
        return tensor
    if isinstance(frame, dict):
        return {key: put_back(item, make, made, (*place, key)) for key, item in frame.items()}
    if isinstance(frame, (list, tuple)):
        return type(frame)(put_back(item, make, made, (*place, index)) for index, item in enumerate(frame))
    return frame


def _name(place: Place) -> str:
    return ".".join(map(str, place))


def _merged(parts: Iterator[dict[str, Piece]]) -> dict[str, Piece]:
    return {name: piece for each in parts for name, piece in each.items()}
