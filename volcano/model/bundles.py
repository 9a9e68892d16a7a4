# SPDX-License-Identifier: Apache-2.0
"""What may be taken of a gang together: its surplus, or all of it.

Sources: pkg/scheduler/actions/utils/bundle.go, Volcano 1.15.1; partitions (sub-jobs) are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.resources import Resources, add

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kfp_volcano.volcano.model.gangs import Gang
    from kfp_volcano.volcano.model.tasks import Task

__all__ = ["Bundle", "allowed_bundles", "bundles_of", "in_order"]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pods of one gang that go together."""

    gang: Gang
    tasks: tuple[Task, ...]
    whole: bool
    """Whether the gang is broken by it."""

    def worth(self, need: Resources) -> float:
        """What it gives of a need, against what its gang loses (ROI); infinite where the gang survives."""
        if not self.whole:
            return math.inf
        given = sum(min(1.0, part) for part in _parts(self.tasks, need))
        lost = sum(_parts(self.gang.tasks, need))
        return given / lost if lost else math.inf


def bundles_of(gang: Gang, candidates: Iterable[Task]) -> list[Bundle]:
    """The pods a gang can lose and go on, and the others; of a gang that is incomplete already, all."""
    ordered = sorted(candidates, key=lambda task: (task.priority, task.order))
    surplus = gang.ready_count - gang.minimum
    if surplus < 0:
        return [Bundle(gang, tuple(ordered), whole=False)]
    by_role = gang.role_surplus()
    spare, needed = [], []
    for task in ordered:
        bound = by_role is not None and task.role in by_role
        if surplus > 0 and not (bound and by_role is not None and by_role[task.role] <= 0):
            surplus -= 1
            spare.append(task)
            if bound and by_role is not None:
                by_role[task.role] -= 1
        else:
            needed.append(task)
    found = ((spare, False), (needed, True))
    return [Bundle(gang, tuple(tasks), whole=whole) for tasks, whole in found if tasks]


def allowed_bundles(bundles: Iterable[Bundle], allowed: set[Task]) -> list[Bundle]:
    """What is left of bundles if only these pods may go: a whole gang goes only whole."""
    valid = []
    for bundle in bundles:
        approved = tuple(task for task in bundle.tasks if task in allowed)
        if approved and (not bundle.whole or len(approved) == len(bundle.tasks)):
            valid.append(replace(bundle, tasks=approved))
    return valid


def in_order(bundles: Iterable[Bundle], need: Resources, rank: Callable[[Gang], object]) -> list[Bundle]:
    """Surplus before gangs, then by rank of the gang, then the best worth, then age."""

    def key(bundle: Bundle) -> tuple[object, ...]:
        return bundle.whole, rank(bundle.gang), -bundle.worth(need), bundle.gang.order

    return sorted(bundles, key=key)


def _parts(tasks: Iterable[Task], need: Resources) -> Iterable[float]:
    total: Mapping[str, int] = {}
    for task in tasks:
        total = add(total, task.request)
    return [total.get(name, 0) / amount for name, amount in need.items() if amount]
