"""Gangs that are within what their queue deserves: those that free GPUs serve, and whom the others are asked of. Pure.

Each of the others is asked of one queue that has borrowed, so that no two give for it: of the one that is most over its
share (allocated / deserved, Volcano's own order of reclaim) and has surplus enough. What its own queue's surplus serves
is asked of nobody else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping  # noqa: TC003 - a type of fields
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.snapshot import PendingGang  # noqa: TC001 - a type of fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def entitled(gangs: Iterable[PendingGang], room: int) -> list[PendingGang]:
    """The gangs of a queue that are within what it deserves, of which it has `room` GPUs left."""
    found = []
    for gang in sorted(gangs, key=_order):
        if gang.gpus <= room:
            room -= gang.gpus
            found.append(gang)
    return found


def claims_of(
    gangs: Iterable[PendingGang], room: Room, lenders: Sequence[Lender], surplus: Mapping[str, int]
) -> Claims:
    """Share out what gangs are owed.

    Args:
        gangs: Entitled ones of all queues, each with its queue's name.
        room: What is free on nodes.
        lenders: Who may be asked.
        surplus: GPUs that each of the gangs' own queues can give.
    """
    asked: dict[str, list[PendingGang]] = defaultdict(list)
    served: list[PendingGang] = []
    own = dict(surplus)
    left = {lender.queue: min(lender.borrowed, lender.surplus) for lender in lenders}
    free = sum(spot.later * count for spot, count in room.crowd.items())
    for gang in sorted(gangs, key=_order)[:MOST_GANGS]:
        after = room.take([(gang.shape, gpus) for gpus in gang.pods], later=True)
        if after is not None:
            room, free = after, free - gang.gpus
            served.append(gang)
            continue
        lacking = max(1, gang.gpus - free)
        if own.get(gang.queue, 0) >= lacking:
            own[gang.queue] -= lacking
            continue
        for lender in sorted(lenders, key=lambda lender: (-lender.over, -lender.borrowed, lender.queue)):
            if lender.queue != gang.queue and left[lender.queue] >= lacking:
                left[lender.queue] -= lacking
                asked[lender.queue].append(gang)
                break
        else:
            continue
        free = max(0, free - (gang.gpus - lacking))
    return Claims({queue: tuple(each) for queue, each in asked.items()}, tuple(served))


def _order(gang: PendingGang) -> tuple[int, float, str]:
    return -gang.priority, gang.since, gang.key
