# SPDX-License-Identifier: Apache-2.0
"""Actions `allocate` and `backfill`: which waiting pods get a node.

Sources: pkg/scheduler/actions/{allocate,backfill}, Volcano 1.15.1; network topologies and partitions are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.order import lines
from kfp_volcano.volcano.model.resources import lacking
from kfp_volcano.volcano.model.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.volcano.model.gangs import Gang
    from kfp_volcano.volcano.model.nodes import Node
    from kfp_volcano.volcano.model.session import Session
    from kfp_volcano.volcano.model.tasks import Task

__all__ = ["allocate", "backfill", "best_node"]


def allocate(session: Session) -> None:
    """Give nodes to pods: gangs whole or not at all, then what is above the minimum one by one, in turn."""
    waiting = {}
    for gang in session.active():
        tasks = [task for task in gang.pending() if not task.best_effort]
        if tasks:
            waiting[gang] = tasks[::-1]
    queues, gangs = lines(session, waiting)
    while queues:
        queue = queues.pop()
        line = gangs[queue.name]
        if not line:
            continue
        gang = line.pop()
        statement = _place(session, gang, waiting[gang])
        if gang.committable:
            statement.commit()
            if waiting[gang]:
                line.push(gang)
        queues.push(queue)


def _place(session: Session, gang: Gang, waiting: list[Task]) -> Statement:
    """Serve a gang's pods, the last of the list first, until it may start, or one more of a gang that has.

    Promises of a gang that may start once others are gone stay in effect for this cycle; all is undone of one that may
    not. Pods that were looked at are off the list.
    """
    statement = Statement(session)
    queue = session.queues[gang.queue]
    served = []
    while waiting:
        task = waiting.pop()
        task.message = session.refusal(queue, task.request)
        if task.message:
            continue
        if task.role in gang.misfits:
            task.message = f"another pod of {task.role!r} fits no node"
            continue
        node = _node_for(session, task)
        if node is None:
            gang.misfits.add(task.role)
            if gang.may_continue():
                continue
            break
        if lacking(task.request, node.idle):
            statement.pipeline(task, node, evicting=False)
        else:
            statement.allocate(task, node)
        served.append(task)
        if gang.committable:
            break
    if not gang.committable and not gang.pipelined:
        statement.discard()
        for task in served:
            task.message = "the rest of its gang does not fit"
    return statement


def _node_for(session: Session, task: Task) -> Node | None:
    """The best node for a pod, or None with the reason on the pod."""
    nominated = session.nodes.get(task.pod.get("status", {}).get("nominatedNodeName", ""))
    if nominated and not nominated.refusal(task) and not nominated.misfit(task, nominated.future_idle()):
        return nominated
    refusals: dict[str, int] = {}
    fitting = []
    for node, count in session.spots():
        refusal = node.refusal(task) or node.misfit(task, node.future_idle())
        if refusal:
            refusals[refusal] = refusals.get(refusal, 0) + count
        else:
            fitting.append(node)
    if not fitting:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(refusals.items()))
        task.message = f"0/{len(session.nodes)} nodes are available: {reasons or 'there are none'}."
        return None
    return best_node(task, fitting)


def best_node(task: Task, nodes: Iterable[Node]) -> Node:
    """Of the nodes with room now, or else of those with room later, the one with the highest score."""
    among = list(nodes)
    return max(
        [node for node in among if not lacking(task.request, node.idle)] or among, key=lambda node: node.score(task)
    )


def backfill(session: Session) -> None:
    """Give nodes to pods that ask for nothing; they are bound when their gang may start."""
    for gang in session.active():
        for task in gang.pending():
            if not task.best_effort:
                continue
            node = _node_for(session, task)
            if node is None:
                continue
            statement = Statement(session)
            statement.allocate(task, node)
            if gang.committable:
                statement.commit()
