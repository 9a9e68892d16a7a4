# SPDX-License-Identifier: Apache-2.0
"""Which option each Job of a queue takes: an integer programme, solved exactly by HiGHS, priority by priority. Pure.

For the Jobs of one priority, x[j,o] = 1 where Job j takes its option o, and y[k,p] pods of kind k go to pool p:

    least   sum of cost[j,o] x[j,o]
    with    sum over o of x[j,o] = 1                                        each Job j has one size
            sum of gpus[j,o] x[j,o] <= limit                                the queue's limit
            sum of adds[j,o] x[j,o] = sum over p of y[k,p]                  each pod that is added goes to a pool
            sum of w(k,g) y[k,p] - sum of w(k,g) gives[j,o,p] x[j,o] <= places[p,g]     and fits there, for each size g

*Priorities* are solved one after another from the highest, each with what those before left, while all Jobs below it
count with their smallest size. So what a Job gets does not depend on Jobs of lower priority, save for what they cannot
give; and to raise a Job's priority never makes its own part worse: let q be the best for those of the higher priority
alone and a the best for the Job after that; the best for both together costs no more than q and a, and its share of
those others no less than q, hence the Job's share no more than a.

*Exact, and soon*: the relaxation, which may take parts of options, tells how little any answer costs, and for each
option how much more every answer costs that takes it (its reduced cost). A whole answer at hand, made from the
relaxation or greedily, is the best if it costs no more; otherwise no option matters whose reduced cost exceeds the
difference, and those few that are left go to branch and bound. What is left out cannot be in a better answer.

*Bounded, and the same every time*: HiGHS is a deterministic programme; it gets the problem in an order that depends on
the Jobs' names alone, and a limit of nodes. The limit of time is far above what these allow and a last resort: an
answer that came of it would hang on the machine, so that then, as when HiGHS fails or the problem has more than
`MOST_OPTIONS`, the answer at hand is taken, and `gap` tells how far from the best it may be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.goodput.choices import Usage, total
from kfp_volcano.elastic.policies.goodput.greedy import improve
from kfp_volcano.elastic.policies.goodput.programme import Bounded, Programme

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.goodput.capacity import Capacity
    from kfp_volcano.elastic.policies.goodput.choices import Choice, Option

__all__ = ["MOST_OPTIONS", "Assignment", "assign"]

MOST_OPTIONS = 100_000
"""Larger problems are answered greedily."""
_NOTHING = 1e-9
"""A cost below which nothing is left to be gained."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What each Job takes."""

    options: Mapping[str, Option]
    """By key."""
    exact: bool
    """False: for some priority the answer at hand was taken, which may not be the best."""
    gap: float
    """By how much of its cost an answer may be from the best at most, over the priorities; infinite: not known."""


def assign(choices: Sequence[Choice], capacity: Capacity, bounded: Bounded) -> Assignment:
    """One option for each choice, the same for equal problems whatever their order."""
    ordered = sorted(choices, key=lambda choice: (-choice.priority, choice.key))
    taken: dict[str, Option] = {choice.key: choice.options[0] for choice in ordered}
    exact, gap = True, 0.0
    for _, group in groupby(ordered, key=lambda choice: choice.priority):
        level = list(group)
        found, off = _level(level, ordered, taken, capacity, bounded)
        taken.update(found)
        exact, gap = exact and off <= bounded.gap, max(gap, off)
    return Assignment(taken, exact, gap)


def _level(
    level: Sequence[Choice],
    everyone: Sequence[Choice],
    taken: Mapping[str, Option],
    capacity: Capacity,
    bounded: Bounded,
) -> tuple[dict[str, Option], float]:
    """The options of one priority's Jobs beside what the others take, and by how much they may be from the best."""
    if all(len(choice.options) == 1 for choice in level):
        return {choice.key: choice.options[0] for choice in level}, 0.0
    at_hand = greedy(level, everyone, taken, capacity)
    if sum(len(choice.options) for choice in level) > MOST_OPTIONS:
        return at_hand, math.inf
    here = {choice.key for choice in level}
    programme = Programme(level, [choice for choice in everyone if choice.key not in here], taken, capacity)
    relaxed = programme.relaxed(bounded.seconds)
    if relaxed is None:
        return at_hand, math.inf
    rounded = greedy(level, everyone, {**taken, **programme.largest(relaxed.parts)}, capacity)
    at_hand = min((rounded, at_hand), key=lambda each: total(level, each))
    cost = total(level, at_hand)
    gap = max(0.0, cost - relaxed.cost) / max(cost, _NOTHING)
    if gap <= bounded.gap:
        return at_hand, gap
    solved = programme.whole(relaxed.extra <= cost - relaxed.cost, bounded)
    if solved is None:
        return at_hand, gap
    found, gap = solved
    return (found if total(level, found) < cost else at_hand), gap


def greedy(
    level: Sequence[Choice], everyone: Sequence[Choice], taken: Mapping[str, Option], capacity: Capacity
) -> dict[str, Option]:
    """The answer at hand for one priority's Jobs: from what they are taken to have, as far as that fits, upwards.

    Never worse than to leave them as they are, where those of higher priority let them.
    """
    smallest = {choice.key: choice.options[0] for choice in level}
    beside = [(choice, smallest.get(choice.key, taken[choice.key])) for choice in everyone]
    usage, staying = Usage(capacity), Usage(capacity)
    if not all(each.apply_all(beside) for each in (usage, staying)):
        return smallest  # those of higher priority fit, but not by going where most room is
    start = {}
    for choice in sorted(level, key=lambda choice: taken[choice.key].gpus):
        fits = usage.apply(choice, taken[choice.key])
        start[choice.key] = taken[choice.key] if fits else choice.options[0]
    found = improve(level, start, usage)
    as_they_are = {choice.key: choice.stay for choice in level}
    cheaper = total(level, as_they_are) < total(level, found)
    if cheaper and staying.apply_all([(choice, choice.stay) for choice in level]):
        return as_they_are
    return found
