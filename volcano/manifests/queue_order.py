# SPDX-License-Identifier: Apache-2.0
"""In which order queues change, so that Volcano refuses none of the changes.

Volcano looks at one queue at a time, and at once: what a queue gets, the one above it must have, and those beside it
must have given up. So queues are taken to their ends one by one, whichever the rules let pass (`Forest.refusal`):
those that go or shrink from the leaves upwards, then those that come, grow or move from the top down. Where each waits
for another (two queues that exchange cpu for memory, a circle of moves), all that are left first shrink to the least
of what they have and what they get. That is always possible, and then the way from the top down is free:

- the least of two sound sets of amounts over one hierarchy is sound: a sum of minima is no more than the minimum of
  the sums;
- whatever moves, and all below it, shrinks to nothing, so that it fits where it comes and makes room where it leaves;
- once the queue above has its final amounts, the final share of one below is left, as all others there have no more
  than their own final shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.volcano.manifests.queue_terms import Forest, Terms, alike, least, same, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfp_volcano.schemas.queue_tree import Amounts

__all__ = ["Turn", "shrinks", "turns"]


class Turn(NamedTuple):
    """One change of one queue."""

    name: str
    terms: Terms | None
    """What it is from then on; None: it is deleted."""
    gives_way: bool
    """Whether it is only the first of two, which makes room for others."""
    first_below: bool
    """Whether it is, at that time, the first queue below its new parent."""


def turns(now: Mapping[str, Terms], ends: Mapping[str, Terms | None]) -> list[Turn]:
    """The changes by which queues that are `now` come to their `ends` (None: deleted), each at most in two steps.

    `now` has all queues of the cluster, `ends` those that change. Raises SpecError where that cannot be, because the
    queues of the cluster break Volcano's rules already.
    """
    forest = Forest(now)
    final = Forest({**now, **{name: terms for name, terms in ends.items() if terms}})
    pending = dict(ends)
    found: list[Turn] = []
    gave_way = False
    while pending:
        waiting = len(pending)
        for name in _order(forest, final, pending):
            if _finish(forest, final, name, pending, found):
                del pending[name]
        if len(pending) == waiting:
            if gave_way:
                raise SpecError(_stuck(forest, pending), source="the queues of this cluster")
            _give_way(forest, final, pending, found)
            gave_way = True
    return found


def shrinks(now: Terms, end: Terms) -> bool:
    """Whether a queue stays where it is and gets more of nothing."""
    return (
        now.parent == end.parent
        and _within(end.deserved, now.deserved)
        and _within(end.guarantee, now.guarantee)
        and same(least((now.capability, end.capability)), end.capability)
    )


def _order(forest: Forest, final: Forest, pending: Mapping[str, Terms | None]) -> list[str]:
    going = [name for name, end in pending.items() if end is None]
    shrinking = [name for name, end in pending.items() if end and name in forest and shrinks(forest[name], end)]
    others = [name for name in pending if name not in {*going, *shrinking}]
    return [*_leaves_first(forest, going), *_leaves_first(forest, shrinking), *_top_down(final, others)]


def _leaves_first(forest: Forest, names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: -len(forest.above_all(name)))


def _top_down(forest: Forest, names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: len(forest.above_all(name)))


def _finish(forest: Forest, final: Forest, name: str, pending: Mapping[str, Terms | None], found: list[Turn]) -> bool:
    """Take a queue to its end; false where Volcano would refuse that now, or queues above it are to change first."""
    end = pending[name]
    if end is None:
        if forest.below(name):
            return False
        forest.remove(name)
        found.append(Turn(name, None, gives_way=False, first_below=False))
        return True
    early = any(above in pending for above in final.above_all(name))
    if (early and not (name in forest and shrinks(forest[name], end))) or forest.refusal(name, end):
        return False
    found.append(Turn(name, end, gives_way=False, first_below=not forest.below(end.parent)))
    forest.put(name, end)
    return True


def _give_way(forest: Forest, final: Forest, pending: dict[str, Terms | None], found: list[Turn]) -> None:
    """Let every queue that waits shrink to the least of what it has and what it gets, from the leaves upwards.

    What is below one that moves waits with it, also where it is at its end already.
    """
    for name, end in list(pending.items()):
        if name in forest and (end is None or end.parent != forest[name].parent):
            for below in forest.below_all(name):
                pending.setdefault(below, forest[below])
    top_down = _top_down(forest, (name for name in pending if name in forest))
    met: dict[str, Terms] = {}
    emptied: set[str] = set()
    for name in top_down:
        now, end = forest[name], pending[name]
        stays = end is not None and now.parent == end.parent and now.parent not in emptied
        if not stays:
            emptied.add(name)
        limits = [forest.limits(name), final.limits(name)]
        if now.parent in met:
            limits.append(met[now.parent].capability)
        met[name] = Terms(
            parent=now.parent,
            capability=least(limits),
            deserved=_both(now.deserved, end.deserved) if end and stays else {},
            guarantee=_both(now.guarantee, end.guarantee) if end and stays else {},
        )
    for name in reversed(top_down):
        if not alike(forest[name], met[name]) and not forest.refusal(name, met[name]):
            found.append(Turn(name, met[name], gives_way=True, first_below=False))
            forest.put(name, met[name])


def _stuck(forest: Forest, pending: Mapping[str, Terms | None]) -> list[Problem]:
    return [
        Problem(
            name,
            f"cannot become what the tree says: {forest.refusal(name, end)}",
            "Volcano's rules are broken there already: correct the queues by hand first",
        )
        for name, end in pending.items()
        if end
    ]


def _within(amounts: Amounts, limits: Amounts) -> bool:
    """Whether amounts are no more than others; one that is absent is less than any."""
    return all(name in limits and value(text) <= value(limits[name]) for name, text in amounts.items())


def _both(one: Amounts, other: Amounts) -> Amounts:
    """The smaller amount of each resource that both name."""
    return {name: text for name, text in least((one, other)).items() if name in one and name in other}
