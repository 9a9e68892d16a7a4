# SPDX-License-Identifier: Apache-2.0
"""The good answer at hand: from the smallest sizes upwards, always the step that gains most for its GPUs. Pure.

The classic of multiple-choice knapsacks (Sinha and Zoltners 1979): of each Job's options only those on the lower convex
hull of cost over GPUs are steps, so that each Job's next step always gains more for a GPU than the one after. Where a
step of every Job takes equally many GPUs, and the GPUs are the only limit, the answer is the best one; otherwise it is
off by less than the last step that did not fit.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.policies.goodput.choices import Choice, Option, Usage

__all__ = ["improve"]


def improve(choices: Sequence[Choice], start: Mapping[str, Option], usage: Usage) -> dict[str, Option]:
    """Options for these choices, of which `usage` has those of `start` already; `usage` is moved along."""
    taken = dict(start)
    steps = {choice.key: _hull(start[choice.key], choice.options) for choice in choices}
    by_key = {choice.key: choice for choice in choices}
    heap: list[tuple[float, str, int]] = []

    def push(key: str, step: int) -> None:
        hull = steps[key]
        if step < len(hull):
            gained = hull[step - 1].cost - hull[step].cost
            took = hull[step].gpus - hull[step - 1].gpus
            heapq.heappush(heap, (-gained / took if took else -float("inf"), key, step))

    for key in taken:
        push(key, 1)
    while heap:
        _, key, step = heapq.heappop(heap)
        if usage.apply(by_key[key], steps[key][step]):
            taken[key] = steps[key][step]
            push(key, step + 1)
    # What is left over may still do for a smaller step than the hull has.
    for choice in sorted(choices, key=lambda choice: choice.key):
        for option in sorted(choice.options, key=lambda option: (option.cost, option.gpus)):
            if option.cost < taken[choice.key].cost and usage.apply(choice, option):
                taken[choice.key] = option
                break
    return taken


def _hull(first: Option, options: Sequence[Option]) -> list[Option]:
    """The options that are steps from the first one upwards: cost falls ever less for each GPU more."""
    hull = [first]
    for option in sorted(options, key=lambda option: (option.gpus, option.cost)):
        if option.gpus < first.gpus or option.cost >= hull[-1].cost:
            continue
        while len(hull) > 1 and _slope(hull[-1], option) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(option)
    return hull


def _slope(before: Option, after: Option) -> float:
    took = after.gpus - before.gpus
    return (after.cost - before.cost) / took if took else -float("inf")
