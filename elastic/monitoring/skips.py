# SPDX-License-Identifier: Apache-2.0
"""Batches that are passed over after a rollback, by their places in the order of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.sharding import Cursor

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = ["Skips"]


class Skips:
    """Pieces of the order that are not fed: from a cursor, so many samples of its epoch."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Cursor, int]] = []

    def add(self, start: Cursor, count: int) -> None:
        """From now on `count` samples from `start` are passed over."""
        self._pieces.append((start, count))

    def at(self, cursor: Cursor) -> int:
        """How many samples are passed over at a cursor, within its epoch; 0 where training goes on there."""
        position, found = cursor.position, [cursor.position]
        while found:
            here = Cursor(cursor.epoch, position)
            found = [_end(piece) for piece in self._pieces if _covers(piece, here)]
            position = max(found, default=position)
        return position - cursor.position

    def room(self, cursor: Cursor, batch: int) -> int:
        """How many samples of a batch come before the next piece that is passed over."""
        ahead = [
            start.position - cursor.position
            for start, _ in self._pieces
            if start.epoch == cursor.epoch and start.position > cursor.position
        ]
        return min([batch, *ahead])

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {"pieces": [[start.epoch, start.position, count] for start, count in self._pieces]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over another worker's pieces, or a checkpoint's."""
        self._pieces = [(Cursor(epoch, position), count) for epoch, position, count in state["pieces"]]


def _end(piece: tuple[Cursor, int]) -> int:
    start, count = piece
    return start.position + count


def _covers(piece: tuple[Cursor, int], cursor: Cursor) -> bool:
    start, _ = piece
    return start.epoch == cursor.epoch and start.position <= cursor.position < _end(piece)
