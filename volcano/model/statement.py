# SPDX-License-Identifier: Apache-2.0
"""Decisions that are kept together or undone together.

Source: pkg/scheduler/framework/statement.go, Volcano 1.15.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.tasks import Status

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.nodes import Node
    from kfp_volcano.volcano.model.session import Session
    from kfp_volcano.volcano.model.tasks import Task

__all__ = ["Statement"]


@dataclass(slots=True)
class Statement:
    """Decisions of a cycle, in effect within its session at once, and so visible to the decisions that follow."""

    session: Session
    _moves: list[tuple[Task, Status]] = field(default_factory=list)
    """Pods and the states they had before."""

    def evict(self, task: Task) -> None:
        """A running pod shall go: its queue is relieved at once, its node when it is gone."""
        self._move(task, Status.RELEASING)
        self.session.charge(task, times=-1)
        self.session.nodes[task.node].evict(task)

    def allocate(self, task: Task, node: Node) -> None:
        """A waiting pod gets a node that is free."""
        self._give(task, node, Status.ALLOCATED)

    def pipeline(self, task: Task, node: Node, *, evicting: bool) -> None:
        """A waiting pod is promised a node that will be free; `evicting` if others go for its sake."""
        self._give(task, node, Status.PIPELINED)
        task.evicting = evicting

    def absorb(self, other: Statement) -> None:
        """Take over another statement's decisions."""
        self._moves += other._moves
        other._moves = []

    def commit(self) -> None:
        """Keep the decisions for good: what was allocated is bound."""
        for task, _ in self._moves:
            if task.status is Status.ALLOCATED:
                self.session.gang_of[task].set_status(task, Status.BINDING)
                self.session.nodes[task.node].place(task)
        self._moves = []

    def discard(self) -> None:
        """Undo the decisions, the last first."""
        for task, before in reversed(self._moves):
            evicted = task.status is Status.RELEASING
            self.session.gang_of[task].set_status(task, before)
            self.session.charge(task, times=1 if evicted else -1)
            node = self.session.nodes[task.node]
            if evicted:
                node.place(task)
            else:
                node.remove(task)
                task.node, task.evicting, task.shares = "", False, ()
        self._moves = []

    def __bool__(self) -> bool:
        return bool(self._moves)

    def _give(self, task: Task, node: Node, status: Status) -> None:
        self._move(task, status)
        task.node, task.message = node.name, ""
        node.place(task)
        self.session.charge(task)

    def _move(self, task: Task, status: Status) -> None:
        self._moves.append((task, task.status))
        self.session.gang_of[task].set_status(task, status)
