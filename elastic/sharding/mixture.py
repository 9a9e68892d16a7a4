# SPDX-License-Identifier: Apache-2.0
"""Classes of samples in stated proportions, step by step: an order against skew."""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kfp_volcano.elastic.sharding.shares import apportion
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Mixture"]

_CYCLE = 1 << 14
"""Positions after which the sequence of classes repeats: the proportions hold to one part in so many."""


class Mixture:
    """Samples of several classes in stated proportions; each of a class is fed before any of that class is again.

    Of any positions that follow each other, at any place, a class has its proportion to within 2: so of each global
    batch, and of each worker's share. Within a class the order is shuffled anew each time all its samples were fed,
    which for a rare class is several times an epoch and for a frequent one less than once: the turn goes on over the
    epochs' ends.

    Args:
        labels: each sample's class.
        weights: how much each class is to have, relative to each other; every class of `labels` needs one above 0.
        size: positions in an epoch; as many as there are samples, where it is None.

    Raises:
        SpecError: with every problem, a class without a weight or a weight without samples among them.
    """

    def __init__(
        self, labels: Sequence[Hashable], weights: Mapping[Hashable, float], *, size: int | None = None
    ) -> None:
        members: dict[Hashable, list[int]] = {key: [] for key in weights}
        unknown: dict[Hashable, int] = {}
        for index, label in enumerate(labels.tolist() if isinstance(labels, np.ndarray) else labels):
            if label in members:
                members[label].append(index)
            else:
                unknown[label] = unknown.get(label, 0) + 1
        problems = [
            Problem(
                f"weights[{key!r}]", f"{count} samples are of a class that has no weight", "give it one, or drop them"
            )
            for key, count in unknown.items()
        ]
        problems += [
            Problem(f"weights[{key!r}]", "no sample is of this class") for key, ids in members.items() if not ids
        ]
        problems += [
            Problem(f"weights[{key!r}]", f"{weight!r} is not a finite number above 0")
            for key, weight in weights.items()
            if not (isinstance(weight, int | float) and 0 < weight < float("inf"))
        ]
        if len(members) > _CYCLE:
            problems.append(Problem("weights", f"{len(members)} classes; at most {_CYCLE} can be kept in proportion"))
        self.samples = len(labels)
        self.size = self.samples if size is None else size
        if self.size < 1:
            problems.append(Problem("size", f"{self.size!r} is not a whole number of at least 1"))
        if problems:
            raise SpecError(problems, source="mixture")
        self._members = [np.asarray(ids, dtype=np.int64) for ids in members.values()]
        self._counts = apportion(_CYCLE, [float(weight) for weight in weights.values()])
        self._classes = _spread(self._counts)
        self._nth = np.empty(_CYCLE, dtype=np.int64)
        for index, count in enumerate(self._counts):
            self._nth[self._classes == index] = np.arange(count)
        self._turn = lru_cache(maxsize=2 * len(self._members))(self._shuffle)

    def ids(self, seed: int, epoch: int, start: int, end: int) -> NDArray[np.int64]:
        """See orders.Order."""
        cycle, place = np.divmod(np.arange(start, end, dtype=np.int64) + epoch * self.size, _CYCLE)
        classes = self._classes[place]
        found = np.empty(end - start, dtype=np.int64)
        for index in np.unique(classes).tolist():
            mine = classes == index
            drawn = cycle[mine] * self._counts[index] + self._nth[place[mine]]
            turns, nth = np.divmod(drawn, len(self._members[index]))
            chosen = np.empty(len(nth), dtype=np.int64)
            for turn in np.unique(turns).tolist():
                chosen[turns == turn] = self._turn(seed, index, turn)[nth[turns == turn]]
            found[mine] = chosen
        return found

    def due(self, seed: int, epochs: int) -> NDArray[np.int64]:
        """See orders.Order."""
        cycles, rest = divmod(self.size * epochs, _CYCLE)
        last = np.bincount(self._classes[:rest], minlength=len(self._counts))
        found = np.empty(self.samples, dtype=np.int64)
        for index, members in enumerate(self._members):
            turns, more = divmod(cycles * self._counts[index] + int(last[index]), len(members))
            found[members] = turns
            found[self._turn(seed, index, turns)[:more]] += 1
        return found

    def _shuffle(self, seed: int, index: int, turn: int) -> NDArray[np.int64]:
        members = self._members[index]
        keys = np.random.PCG64(np.random.SeedSequence([seed, index, turn])).random_raw(len(members))
        return members[np.argsort(keys, kind="stable")]


def _spread(counts: Sequence[int]) -> NDArray[np.int64]:
    """Which class stands at each of sum(counts) positions: of the first p, each has p·count/sum to within 1.

    A class' k-th place is due in the window [⌊k/w⌋, ⌈(k+1)/w⌉) for its proportion w; earliest end first misses none
    (Baruah, Cohen, Plaxton, Varvel: Proportionate progress, 1996).
    """
    length = sum(counts)
    found = np.empty(length, dtype=np.int64)
    coming = [(0, index, 0) for index in range(len(counts))]  # (may stand from here on, class, which of its places)
    heapq.heapify(coming)
    waiting: list[tuple[int, int, int]] = []  # (must stand before here, class, which of its places)
    for position in range(length):
        while coming and coming[0][0] <= position:
            _, index, nth = heapq.heappop(coming)
            heapq.heappush(waiting, (-(-(nth + 1) * length // counts[index]), index, nth))
        _, index, nth = heapq.heappop(waiting)
        found[position] = index
        if nth + 1 < counts[index]:
            heapq.heappush(coming, ((nth + 1) * length // counts[index], index, nth + 1))
    return found
