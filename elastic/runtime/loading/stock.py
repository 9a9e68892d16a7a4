# SPDX-License-Identifier: Apache-2.0
"""Samples that were fetched, and those that are to be, by their positions."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.elastic.runtime.share import Share

__all__ = ["Stock"]


class Stock:
    """What is due to this process soon: asked for once, in the order in which it is due, and kept until committed.

    Args:
        fetchers: by how many a share's samples are fetched at a time; it is cut into so many pieces.
    """

    def __init__(self, fetchers: int) -> None:
        self._fetchers = fetchers
        self._samples: dict[int, Any] = {}
        self._asked: set[int] = set()
        self._to_ask: deque[list[tuple[int, int]]] = deque()

    def expect(self, shares: Iterable[Share], committed: int) -> None:
        """These shares are due, in this order, and so many samples are committed.

        What stands before that place is dropped; what was fetched for later ones stays, though it is not due as things
        stand: the next resize may bring it back.
        """
        self._samples = {at: sample for at, sample in self._samples.items() if at >= committed}
        self._to_ask.clear()
        known = self._asked | self._samples.keys()
        for share in shares:
            due = dict(zip(share.positions.tolist(), share.ids.tolist(), strict=True))
            size = -(-len(due) // self._fetchers)
            new = [(at, sample) for at, sample in due.items() if at not in known]
            self._to_ask.extend(new[start : start + size] for start in range(0, len(new), size))
            known |= due.keys()

    @property
    def hungry(self) -> bool:
        """Whether something is due that nobody was asked for yet."""
        return bool(self._to_ask)

    @property
    def waiting(self) -> bool:
        """Whether something is due that has not arrived."""
        return bool(self._to_ask or self._asked)

    def ask(self) -> list[tuple[int, int]]:
        """Positions and ids of the samples that are to be fetched next; none where all are asked for."""
        piece = self._to_ask.popleft() if self._to_ask else []
        self._asked.update(at for at, _ in piece)
        return piece

    def arrived(self, samples: Iterable[tuple[int, Any]]) -> None:
        """These were fetched."""
        for at, sample in samples:
            self._asked.discard(at)
            self._samples[at] = sample

    def holds(self, share: Share) -> bool:
        """Whether all of a share's samples are here."""
        return all(at in self._samples for at in share.positions.tolist())

    def samples(self, share: Share) -> Sequence[Any]:
        """A share's samples, copies that fill it up among them; they stay here."""
        return [self._samples[at] for at in share.positions.tolist()]
