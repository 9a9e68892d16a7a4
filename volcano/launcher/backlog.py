# SPDX-License-Identifier: Apache-2.0
"""What has been read of the pods' output and not been printed yet."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Backlog", "Piece"]

_MOST_CHARACTERS = 1 << 20
_OVERHEAD = 256
"""What a piece takes besides its text."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of a pod, and the place behind them."""

    pod: str
    text: str
    place: str
    note: str = ""
    """What is to be said of the pod's log, in place of lines."""


class Backlog:
    """Takes what many threads read, for one that prints it; whoever reads waits while it is full."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called when there is something again."""
        self._wake = wake
        self._changed = threading.Condition()
        self._pieces: list[Piece] = []
        self._size = 0
        self._closed = False

    @property
    def presses(self) -> bool:
        """Whether it is half full: then it is to be printed at once."""
        with self._changed:
            return self._size >= _MOST_CHARACTERS // 2

    def put(self, piece: Piece) -> bool:
        """Add a piece as soon as there is room; False where nothing is printed any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._size < _MOST_CHARACTERS)
            if self._closed:
                return False
            first = not self._pieces
            self._pieces.append(piece)
            self._size += len(piece.text) + _OVERHEAD
        if first:
            self._wake()
        return True

    def take(self) -> list[Piece]:
        """All that is there, in the order in which it came."""
        with self._changed:
            pieces, self._pieces, self._size = self._pieces, [], 0
            self._changed.notify_all()
            return pieces

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
