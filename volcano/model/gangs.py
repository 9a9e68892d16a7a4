# SPDX-License-Identifier: Apache-2.0
"""Gangs, as the scheduler sees them during one cycle.

Sources: JobInfo (pkg/scheduler/api/job_info.go) and what the plugin gang asks of it (pkg/scheduler/plugins/gang),
Volcano 1.15.1.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.resources import resources
from kfp_volcano.volcano.model.tasks import Status, Task

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kfp_volcano.volcano.model.objects import Manifest

__all__ = ["Gang", "gang_for"]

_QUOTA_PREFIXES = ("requests.", "limits.", "count/")
_READY = frozenset({Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING, Status.SUCCEEDED})
_PROMISED = _READY | {Status.PIPELINED}
_VALID = _PROMISED | {Status.PENDING}


@dataclass(slots=True, eq=False)
class Gang:
    """A PodGroup and its pods."""

    group: Manifest
    queue: str
    priority: int
    order: int
    """Rank by age among all gangs."""
    minimum: int
    """Pods without which it does not run."""
    role_minimums: Mapping[str, int]
    min_resources: Mapping[str, int]
    """What its minimum asks for."""
    tasks: list[Task] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)
    """What its pods hold or have been promised: its part of the cluster, for drf."""
    share: float = 0.0
    """The largest part that `held` is of the cluster's total in any resource."""
    misfits: set[str] = field(default_factory=set)
    """Roles of which a pod found no node in this cycle."""
    _counts: Counter[tuple[str, Status]] = field(default_factory=Counter)
    _totals: Counter[Status] = field(default_factory=Counter)
    _best_effort: Counter[str] = field(default_factory=Counter)
    """Waiting pods that ask for nothing, by role: they count as served."""

    def join(self, task: Task) -> None:
        """Add a pod."""
        self.tasks.append(task)
        self._count(task, 1)

    def leave(self, task: Task) -> None:
        """Forget a pod; its place in `tasks` is the caller's to see to."""
        self._count(task, -1)

    def set_status(self, task: Task, status: Status) -> None:
        """Move one of its pods on."""
        self._count(task, -1)
        task.status = status
        self._count(task, 1)

    def count(self, *statuses: Status) -> int:
        """How many of its pods are in any of these."""
        found = 0
        for status in statuses:
            found += self._totals[status]
        return found

    def pending(self) -> list[Task]:
        """Its pods that wait for a node, the first to be served first."""
        if not self._totals[Status.PENDING]:
            return []
        waiting = [task for task in self.tasks if task.status is Status.PENDING]
        waiting.sort(key=lambda task: (-task.priority, task.index, task.order))
        return waiting

    @property
    def ready_count(self) -> int:
        """Pods that have a node or have succeeded (ReadyTaskNum)."""
        return self.count(*_READY)

    @property
    def ready(self) -> bool:
        """Whether the minimum is reached (IsReady)."""
        return self.ready_count + self._best_effort.total() >= self.minimum

    @property
    def committable(self) -> bool:
        """Whether it may start: the minimum of the whole, and of each role where those bind (JobReady)."""
        return self.ready and self._roles_reach(_READY)

    @property
    def pipelined(self) -> bool:
        """Whether it may start once what is promised to it is free (JobPipelined)."""
        return self.count(*_PROMISED) + self._best_effort.total() >= self.minimum and self._roles_reach(_PROMISED)

    @property
    def starving(self) -> bool:
        """Whether it is below its minimum and has pods without a promise (gang's and priority's JobStarving)."""
        served = self.count(*_PROMISED)
        return served < self.minimum and served < len(self.tasks)

    @property
    def shortage(self) -> str:
        """What keeps it from being a valid gang at all (gang's JobValid), or nothing."""
        if self._binding_roles() and any(
            least and self._role_count(role, _VALID) < least for role, least in self.role_minimums.items()
        ):
            return "Not enough valid pods of each task for gang-scheduling"
        valid = self.count(*_VALID)
        if valid < self.minimum:
            return f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {self.minimum}"
        return ""

    def may_continue(self) -> bool:
        """Whether pods of other roles should be tried when one found no node (NeedContinueAllocating)."""
        if self.minimum >= len(self.tasks):
            return False
        if self._binding_roles():
            return all(self._role_count(role, _READY) >= self.role_minimums.get(role, 0) for role in self.misfits)
        left = sum(task.status is Status.PENDING and task.role not in self.misfits for task in self.tasks)
        return self.ready_count + left >= self.minimum

    def role_surplus(self) -> dict[str, int] | None:
        """How many pods each role with a minimum has above it, or None where the roles' minimums do not bind."""
        if not self._binding_roles():
            return None
        return {role: self._role_count(role, _READY) - least for role, least in self.role_minimums.items()}

    def _binding_roles(self) -> bool:
        return self.minimum >= sum(self.role_minimums.values())

    def _roles_reach(self, statuses: Collection[Status]) -> bool:
        return not self._binding_roles() or all(
            not least or self._role_count(role, statuses) + self._best_effort[role] >= least
            for role, least in self.role_minimums.items()
        )

    def _role_count(self, role: str, statuses: Collection[Status]) -> int:
        found = 0
        for status in statuses:
            found += self._counts[role, status]
        return found

    def _count(self, task: Task, change: int) -> None:
        self._counts[task.role, task.status] += change
        self._totals[task.status] += change
        if task.status is Status.PENDING and task.best_effort:
            self._best_effort[task.role] += change


def gang_for(group: Manifest, priority: int, order: int) -> Gang:
    """A PodGroup without its pods."""
    spec = group["spec"]
    stated = resources(spec.get("minResources"))
    return Gang(
        group=group,
        queue=str(spec["queue"]),
        priority=priority,
        order=order,
        minimum=int(spec.get("minMember", 0)),
        role_minimums=spec.get("minTaskMember") or {},
        min_resources={name: amount for name, amount in stated.items() if not name.startswith(_QUOTA_PREFIXES)},
    )
