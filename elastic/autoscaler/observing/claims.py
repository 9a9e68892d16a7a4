# SPDX-License-Identifier: Apache-2.0
"""Gangs that are within what their queue deserves: those that free GPUs serve, and whom the others are asked of. Pure.

Each of the others is asked of one queue that has borrowed, so that no two give for it: of the one that is most over its
share (allocated / deserved, Volcano's own order of reclaim) and has surplus enough. What its own queue's surplus serves
is asked of nobody else. Where a queue above the gang's has nothing left of its capability, only queues below that one
are asked, whatever is free on nodes: Volcano leaves such a gang waiting beside idle nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping  # noqa: TC003 - a type of fields
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.snapshot import PendingGang  # noqa: TC001 - a type of fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kfp_volcano.elastic.policies.room import Room

__all__ = ["MOST_GANGS", "Claims", "Lender", "claims_of", "entitled"]

MOST_GANGS = 64
"""So many gangs are looked at, the first by priority and age: the others have to wait for these anyway."""


@dataclass(frozen=True, slots=True)
class Lender:
    """A queue that holds more than it deserves."""

    queue: str
    borrowed: int
    deserved: int
    surplus: int
    """GPUs of its elastic Jobs' workers above their minimum."""
    above: tuple[str, ...] = ()
    """The queues above it."""

    @property
    def over(self) -> float:
        """How far it is over its share."""
        return (self.deserved + self.borrowed) / self.deserved if self.deserved else float("inf")


@dataclass(frozen=True, slots=True)
class Claims:
    """What is owed to gangs within their queue's share."""

    asked: Mapping[str, tuple[PendingGang, ...]] = field(default_factory=dict)
    """Gangs by the queue that is asked to give for them."""
    served: tuple[PendingGang, ...] = ()
    """Gangs for which enough is free, or coming free: it is theirs."""

    def asked_anew(self, before: Claims | None) -> Iterator[str]:
        """The queues that are asked for something else than before."""
        asked = before.asked if before else {}
        return (queue for queue in {*self.asked, *asked} if self.asked.get(queue) != asked.get(queue))

    @property
    def coming(self) -> Mapping[str, int]:
        """GPUs that these gangs are going to hold, by queue."""
        found: Counter[str] = Counter()
        for gang in chain(self.served, *self.asked.values()):
            found[gang.queue] += gang.gpus
        return found


def entitled(gangs: Iterable[PendingGang], room: int) -> list[PendingGang]:
    """The gangs of a queue that are within what it deserves, of which it has `room` GPUs left."""
    found = []
    for gang in sorted(gangs, key=_order):
        if gang.gpus <= room:
            room -= gang.gpus
            found.append(gang)
    return found


def claims_of(
    gangs: Iterable[PendingGang],
    room: Room,
    lenders: Sequence[Lender],
    surplus: Mapping[str, int],
    bounds: Mapping[str, Mapping[str, int]],
) -> Claims:
    """Share out what gangs are owed.

    Args:
        gangs: Entitled ones of all queues, each with its queue's name.
        room: What is free on nodes.
        lenders: Who may be asked.
        surplus: GPUs that each of the gangs' own queues can give.
        bounds: By queue of the gangs, the queues above it that have a limit, and the GPUs they could still have.
    """
    asked: dict[str, list[PendingGang]] = defaultdict(list)
    served: list[PendingGang] = []
    own = dict(surplus)
    left = {lender.queue: min(lender.borrowed, lender.surplus) for lender in lenders}
    free = sum(spot.later * count for spot, count in room.crowd.items())
    above = {queue: left for each in bounds.values() for queue, left in each.items()}
    for gang in sorted(gangs, key=_order)[:MOST_GANGS]:
        tight = {queue: gang.gpus - above[queue] for queue in bounds.get(gang.queue, ()) if gang.gpus > above[queue]}
        after = room.take([(gang.shape, gpus) for gpus in gang.pods], later=True)
        if after is not None and not tight:
            room, free = after, free - gang.gpus
            _hold(above, bounds.get(gang.queue, ()), gang.gpus)
            served.append(gang)
            continue
        lacking = max(1, gang.gpus - free, *tight.values())
        if own.get(gang.queue, 0) >= lacking:
            own[gang.queue] -= lacking
            continue
        for lender in sorted(lenders, key=lambda lender: (-lender.over, -lender.borrowed, lender.queue)):
            able = lender.queue != gang.queue and left[lender.queue] >= lacking and tight.keys() <= set(lender.above)
            if able:
                left[lender.queue] -= lacking
                asked[lender.queue].append(replace(gang, short_gpus=max(tight.values(), default=0)))
                break
        else:
            continue
        free = max(0, free - (gang.gpus - lacking))
        _hold(above, bounds.get(gang.queue, ()), gang.gpus)
        _hold(above, lender.above, -lacking)
    return Claims({queue: tuple(each) for queue, each in asked.items()}, tuple(served))


def _hold(left: dict[str, int], queues: Iterable[str], gpus: int) -> None:
    for queue in queues:
        if queue in left:
            left[queue] -= gpus


def _order(gang: PendingGang) -> tuple[int, float, str]:
    return -gang.priority, gang.since, gang.key
