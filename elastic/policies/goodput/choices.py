# SPDX-License-Identifier: Apache-2.0
"""The plain problem behind the policy: one option for each Job, at the least cost, within what fits. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.elastic.policies.goodput.capacity import Capacity, Kind

__all__ = ["Choice", "Option", "Usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A size that a Job may have, and what that takes or gives beside what it holds."""

    workers: int
    cost: float
    """What is summed up and made least."""
    adds: int = 0
    """Pods to be placed."""
    pools: tuple[int, ...] = ()
    """Where they may go."""
    gives: tuple[tuple[int, int], ...] = ()
    """(pool, pods) that leave."""
    gpus: int = 0
    """Of the limit: more than now, or less (negative)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A Job's options."""

    key: str
    priority: int
    kind: Kind
    options: tuple[Option, ...]
    """By size, the smallest first; at least one. One of the smallest size is always feasible."""
    present: int
    """Index of the option to stay as it is."""

    @property
    def stay(self) -> Option:
        """The option to stay as it is."""
        return self.options[self.present]


class Usage:
    """What is taken of a capacity, and by how much more it could be."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._limit = capacity.limit
        self._places = [list(pool.places) for pool in capacity.pools]
        self._most: dict[tuple[int, Kind], int] = {
            (number, kind): most for number, pool in enumerate(capacity.pools) for kind, most in pool.most.items()
        }
        self._placed: dict[str, tuple[Kind, Option, dict[int, int]]] = {}

    def apply(self, choice: Choice, option: Option) -> bool:
        """Take an option, in place of what was taken for the same Job before; pods go where most room is left.

        False, and all is as it was, if it does not fit.
        """
        before = self._placed.pop(choice.key, None)
        if before is not None:
            self._move(*before, sign=1)
        spread = self._spread(choice.kind, option)
        if spread is not None:
            self._move(choice.kind, option, spread, sign=-1)
            if self._sound(choice.kind, before, option):
                self._placed[choice.key] = (choice.kind, option, spread)
                return True
            self._move(choice.kind, option, spread, sign=1)
        if before is not None:
            self._move(*before, sign=-1)
            self._placed[choice.key] = before
        return False

    def apply_all(self, chosen: Iterable[tuple[Choice, Option]]) -> bool:
        """Take all these, first what gives, then what has the least choice of where to go; False if one did not fit."""
        order = sorted(chosen, key=lambda each: (each[1].adds > 0, len(each[1].pools), each[0].key))
        return all(self.apply(choice, option) for choice, option in order)

    def _spread(self, kind: Kind, option: Option) -> dict[int, int] | None:
        if option.gpus > self._limit:
            return None
        spread: dict[int, int] = defaultdict(int)
        left = option.adds
        for pool in sorted(option.pools, key=lambda pool: (-self._room(pool, kind), pool)):
            spread[pool] = max(0, min(left, self._room(pool, kind)))
            left -= spread[pool]
        return None if left else dict(spread)

    def _room(self, pool: int, kind: Kind) -> int:
        levels = self.capacity.levels
        places = min(
            self._places[pool][level] * levels[level] // kind.gpus
            for level in range(len(levels))
            if levels[level] <= kind.gpus
        )
        return min(places, self._most.get((pool, kind), places))

    def _move(self, kind: Kind, option: Option, spread: dict[int, int], *, sign: int) -> None:
        """Give back (1) or take (-1) what an option needs."""
        self._limit += sign * option.gpus
        pods = defaultdict(int, spread)
        for pool, given in option.gives:
            pods[pool] -= given
        for pool, count in pods.items():
            places = self._places[pool]
            for level in range(len(places)):
                places[level] += sign * count * self.capacity.weight(kind.gpus, level)
            if (pool, kind) in self._most:
                self._most[pool, kind] += sign * count

    def _sound(self, kind: Kind, before: tuple[Kind, Option, dict[int, int]] | None, option: Option) -> bool:
        """Whether nobody lost what it had been given: a Job that gives less than before takes back."""
        touched = {pool for pool, _ in option.gives} | {pool for pool, _ in (before[1].gives if before else ())}
        return self._limit >= 0 and all(
            min(self._places[pool], default=0) >= 0 and self._most.get((pool, kind), 0) >= 0 for pool in touched
        )


def total(choices: Sequence[Choice], taken: dict[str, Option]) -> float:
    """The cost of what these Jobs take."""
    return sum(taken[choice.key].cost for choice in choices)
