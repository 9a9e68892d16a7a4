# SPDX-License-Identifier: Apache-2.0
"""Room that is planned in: pods are tried on nodes, placed and taken away again, in place. Pure.

Nodes in one state are one entry with a number, so that to place many equal pods costs a step for each state and not for
each node and pod. `Room` is the value in which this begins and ends.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.snapshot import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfp_volcano.elastic.policies.snapshot import Shape

__all__ = ["Draft", "Spot"]


class Spot(NamedTuple):
    """What is left on a node."""

    now: int
    """GPUs that are free."""
    later: int
    """GPUs that are free once all that is leaving is gone; never less than `now`."""
    fits: tuple[tuple[str, int], ...] = ()
    """As in `NodeState`."""
    gpu_class: str = ""

    def pods(self, shape: str, gpus: int, *, later: bool = False) -> int:
        """How many pods of a shape with so many GPUs each, more than none, it can take."""
        free = (self.later if later else self.now) // gpus
        for name, most in self.fits:
            if name == shape:
                return min(free, max(0, most))
        return free


class _Move(NamedTuple):
    """Nodes that go from one state to another because pods are placed on them."""

    before: Spot
    after: Spot
    nodes: int


class Draft:
    """Nodes and a limit, changed in place; see `Room`, whose fields these are."""

    __slots__ = ("_alike", "_crowd", "_kinds", "_later", "_named", "_shapes", "limit", "limit_later")

    def __init__(
        self,
        limit: int,
        limit_later: int,
        named: Mapping[str, Spot],
        crowd: Mapping[Spot, int],
        shapes: Mapping[str, Shape],
    ) -> None:
        self.limit = limit
        self.limit_later = limit_later
        self._named = dict(named)
        self._crowd = dict(crowd)
        self._shapes = shapes
        self._alike: dict[Spot, dict[str, None]] = {}
        """Names of nodes in each state, in an order that does not depend on that of `named`."""
        for name in sorted(self._named):
            self._alike.setdefault(self._named[name], {})[name] = None
        self._kinds = {spot: count for spot, count in self._crowd.items() if count}
        """How many nodes are in each state, with and without a name."""
        for spot, names in self._alike.items():
            self._kinds[spot] = self._kinds.get(spot, 0) + len(names)
        self._later = sum(spot.later * count for spot, count in self._kinds.items())

    def copy(self) -> Draft:
        """Another one, to be changed by itself."""
        other = copy(self)
        other._become_own()  # noqa: SLF001 - one of this class
        return other

    def _become_own(self) -> None:
        self._named, self._crowd, self._kinds = self._named.copy(), self._crowd.copy(), self._kinds.copy()
        self._alike = {spot: names.copy() for spot, names in self._alike.items() if names}

    @property
    def named(self) -> dict[str, Spot]:
        """What is left on each node that is told apart."""
        return self._named.copy()

    @property
    def crowd(self) -> dict[Spot, int]:
        """How many of the others are left in each state."""
        return self._crowd.copy()

    @property
    def gpus(self) -> int:
        """GPUs that are free now for pods of one GPU that may go anywhere."""
        return max(0, min(self.limit, sum(spot.now * count for spot, count in self._kinds.items())))

    def most_later(self, *, own: bool = True) -> int:
        """GPUs there will be in the end at most, if pods could be split at will."""
        return min(self.limit_later, self._later) if own else self._later

    def workers(self, shape: str, gpus: int, *, later: bool = False, own: bool = True) -> int:
        """How many pods of a shape with `gpus` > 0 GPUs fit; not `own`: another queue's, beside this one's limit."""
        there = 0
        for spot, count in self._kinds.items():
            free = spot.later if later else spot.now
            if free >= gpus:
                there += (spot.pods(shape, gpus, later=later) if spot.fits else free // gpus) * count
        if not own:
            return there
        return min(max(0, self.limit_later if later else self.limit) // gpus, there)

    def fits(self, pods: Iterable[tuple[str, int]], *, later: bool = False, own: bool = True) -> bool:
        """Whether `take` would place them all."""
        return self._plan(pods, later=later, own=own) is not None

    def take(self, pods: Iterable[tuple[str, int]], *, later: bool = False, own: bool = True) -> bool:
        """Place pods (shape, GPUs): all and true, or none and false where they do not all fit.

        Largest pod first, each onto the node it fills best: exact for pods of one size, for mixed sizes a heuristic
        that may miss a tight packing. `later`: pods that may wait for what is leaving; what they get is not free for
        others now either. Not `own`: pods of another queue, which take of the nodes and not of this queue's limit.
        """
        return self._carry_out(self._plan(pods, later=later, own=own), later=later, own=own)

    def take_equal(self, shape: str, gpus: int, count: int) -> bool:
        """As `take`, for equal pods, now."""
        if gpus * count > self.limit:
            return False
        return self._carry_out(self._plan_equal(self._kinds, shape, gpus, count, later=False), later=False, own=True)

    def take_all_that_fit(self, shape: str, gpus: int, count: int, *, own: bool = True) -> None:
        """Place as many of `count` equal pods as fit in the end."""
        if gpus and count:
            fitting = min(count, self.workers(shape, gpus, later=True, own=own))
            self.take([(shape, gpus)] * fitting, later=True, own=own)

    def give(self, nodes: Iterable[str], gpus: int, shape: str = "") -> None:
        """Workers of so many GPUs each leave these nodes: theirs come free later, not now."""
        self._leave(nodes, gpus, shape, 1)

    def give_back(self, nodes: Iterable[str], gpus: int, shape: str = "") -> None:
        """Undo `give`: what was given must not have been taken since."""
        self._leave(nodes, gpus, shape, -1)

    def _leave(self, nodes: Iterable[str], gpus: int, shape: str, sign: int) -> None:
        more = sign * gpus
        for node in nodes:
            if node == NOWHERE:
                continue
            self.limit_later += more
            spot = self._named.get(node)
            if spot is None:
                continue
            fits = spot.fits and tuple((name, most + sign * (name == shape)) for name, most in spot.fits)
            after = Spot(spot.now, spot.later + more, fits, spot.gpu_class)
            self._later += more
            self._rename(node, spot, after)
            _shift(self._kinds, spot, after, 1)

    def _plan(self, pods: Iterable[tuple[str, int]], *, later: bool, own: bool) -> list[_Move] | None:
        counted = Counter(pods)
        if not counted:
            return []  # also beyond the limit: who gives takes no room
        total = sum(pod[1] * count for pod, count in counted.items())
        # None at all fit anywhere, also where a queue holds more than it may by now, as when a Job is to shrink.
        if total and (total > self._later or (own and total > (self.limit_later if later else self.limit))):
            return None
        kinds, moves = self._kinds, []
        for shape, gpus in sorted(counted, key=lambda pod: (-pod[1], pod[0])):
            found = self._plan_equal(kinds, shape, gpus, counted[shape, gpus], later=later)
            if found is None:
                return None
            moves += found
            kinds = _moved(kinds, found) if len(counted) > 1 else kinds
        return moves

    def _plan_equal(
        self, kinds: Mapping[Spot, int], shape: str, gpus: int, count: int, *, later: bool
    ) -> list[_Move] | None:
        """Where equal pods go: a node that is filled best by one is filled best by the next, until it is full."""
        moves: list[_Move] = []
        if not gpus or count <= 0:
            return moves
        fitting = sorted(
            (free, spot)
            for spot in kinds
            if (free := spot.later if later else spot.now) >= gpus
            and (not spot.fits or spot.pods(shape, gpus, later=later))
        )
        for _, spot in fitting:
            each, nodes = spot.pods(shape, gpus, later=later), kinds[spot]
            full = min(nodes, count // each)
            if full:
                moves.append(_Move(spot, self._taken(spot, shape, gpus, each, later=later), full))
                count -= full * each
            if count and full < nodes:
                moves.append(_Move(spot, self._taken(spot, shape, gpus, count, later=later), 1))
                return moves
            if not count:
                return moves
        return None

    def _taken(self, spot: Spot, shape: str, gpus: int, count: int, *, later: bool) -> Spot:
        left = spot.later - gpus * count
        now = min(spot.now, left) if later else spot.now - gpus * count
        fits = spot.fits and tuple((name, most - count * self._weight(shape, name)) for name, most in spot.fits)
        return Spot(now, left, fits, spot.gpu_class)

    def _weight(self, taken: str, other: str) -> int:
        """How many pods of another shape fewer fit beside one that is placed, at most."""
        if taken == other:
            return 1
        one, two = self._shapes.get(taken), self._shapes.get(other)
        if one is None or two is None:
            return 1
        return max(
            (-(-need // two.requests[each]) for each, need in one.requests.items() if two.requests.get(each)), default=0
        )

    def _carry_out(self, moves: list[_Move] | None, *, later: bool, own: bool) -> bool:
        if moves is None:
            return False
        taken = 0
        for before, after, nodes in moves:
            taken += (before.later - after.later) * nodes
            unnamed = min(nodes, self._crowd.get(before, 0))
            if unnamed:
                _shift(self._crowd, before, after, unnamed)
            for _ in range(nodes - unnamed):
                self._rename(next(iter(self._alike[before])), before, after)
            _shift(self._kinds, before, after, nodes)
        self._later -= taken
        if own:
            self.limit_later -= taken
            self.limit = min(self.limit, self.limit_later) if later else self.limit - taken
        return True

    def _rename(self, name: str, before: Spot, after: Spot) -> None:
        self._named[name] = after
        del self._alike[before][name]
        self._alike.setdefault(after, {})[name] = None


def _shift(counts: dict[Spot, int], before: Spot, after: Spot, nodes: int) -> None:
    """So many nodes go from one state to another."""
    counts[after] = counts.get(after, 0) + nodes
    counts[before] -= nodes
    if not counts[before]:
        del counts[before]


def _moved(kinds: Mapping[Spot, int], moves: Iterable[_Move]) -> dict[Spot, int]:
    after = dict(kinds)
    for move in moves:
        _shift(after, *move)
    return after
