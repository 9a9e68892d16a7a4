# SPDX-License-Identifier: Apache-2.0
"""Action `preempt`: within a queue, gangs of higher priority take places from others, then pods from their own gang's.

Source: pkg/scheduler/actions/preempt/preempt.go, Volcano 1.15.1, without its topology-aware variant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.order import lines, victims_in_order
from kfp_volcano.volcano.model.resources import lacking
from kfp_volcano.volcano.model.statement import Statement
from kfp_volcano.volcano.model.tasks import Status
from kfp_volcano.volcano.model.victims import preemptable, suffice

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.gangs import Gang
    from kfp_volcano.volcano.model.nodes import Node
    from kfp_volcano.volcano.model.session import Session
    from kfp_volcano.volcano.model.tasks import Task

__all__ = ["preempt"]


def preempt(session: Session) -> None:
    """Serve the starving gangs, queue by queue; what does not complete a gang is undone."""
    starving = [gang for gang in session.active() if gang.starving]
    queues, gangs = lines(session, starving)
    while queues:
        queue = queues.pop()
        line = gangs[queue.name]
        while line:
            _between_gangs(session, line.pop())
        for gang in starving:
            if gang.queue == queue.name:
                _within_gang(session, gang)


def _between_gangs(session: Session, gang: Gang) -> None:
    statement = Statement(session)
    hopeless: set[str] = set()  # roles of which a pod found nothing: its pods are alike
    for task in gang.pending():
        if not gang.starving:
            break
        if task.role in hopeless or not _eligible(session, task):
            continue
        if _preempt_for(session, statement, task, own=False):
            hopeless.clear()
        else:
            hopeless.add(task.role)
    if gang.pipelined:
        statement.commit()
    else:
        statement.discard()


def _within_gang(session: Session, gang: Gang) -> None:
    for task in gang.pending():
        statement = Statement(session)
        if not _eligible(session, task) or not _preempt_for(session, statement, task, own=True):
            break
        statement.commit()


def _preempt_for(session: Session, statement: Statement, task: Task, *, own: bool) -> bool:
    """Promise a pod the best node on which enough can be taken; whether there is one."""
    possible = []
    for node in session.nodes.values():
        if not node.refusal(task):
            victims = preemptable(session, task, [each for each in node.tasks if _may_go(session, each, task, own=own)])
            if suffice(task, node, victims):
                possible.append((node, victims))
    for node, victims in sorted(possible, key=lambda each: -each[0].score(task)):
        attempt = Statement(session)
        evicting = False
        for victim in victims_in_order(session, victims, task):
            if _fits(session, task, node):
                break
            attempt.evict(victim)
            evicting = True
        if _fits(session, task, node) and node.has_cards(task):
            attempt.pipeline(task, node, evicting=evicting)
            statement.absorb(attempt)
            return True
        attempt.discard()
    return False


def _eligible(session: Session, task: Task) -> bool:
    """Whether a pod may take from others: not if it was promised a node before that still admits it."""
    if not task.may_preempt:
        return False
    name = task.pod.get("status", {}).get("nominatedNodeName", "")
    return not name or (name in session.nodes and bool(session.nodes[name].refusal(task)))


def _may_go(session: Session, other: Task, task: Task, *, own: bool) -> bool:
    theirs, ours = session.gang_of.get(other), session.gang_of[task]
    if theirs is None or theirs.queue != ours.queue or (theirs is ours) is not own:
        return False
    if other.status is not Status.RUNNING and other.status is not Status.BOUND:
        return False
    return other.preemptable and not (task.best_effort and not other.best_effort)


def _fits(session: Session, task: Task, node: Node) -> bool:
    queue = session.queues[session.gang_of[task].queue]
    return not session.refusal(queue, task.request) and not lacking(task.request, node.future_idle())
