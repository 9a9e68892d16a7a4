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
    for task in gang.pending():
        if not gang.starving:
            break
        _preempt_for(session, statement, task, own=False)
    if gang.pipelined:
        statement.commit()
    else:
        statement.discard()


def _within_gang(session: Session, gang: Gang) -> None:
    for task in gang.pending():
        statement = Statement(session)
        if not _preempt_for(session, statement, task, own=True):
            break
        statement.commit()


def _preempt_for(session: Session, statement: Statement, task: Task, *, own: bool) -> bool:
    """Promise a pod the best node on which enough can be taken; whether there is one."""
    if not _eligible(session, task):
        return False
    open_to_it = [node for node in session.nodes.values() if not node.refusal(task)]
    for node in sorted(open_to_it, key=lambda node: -node.score(task)):
        candidates = [other for other in node.tasks if _may_go(session, other, task, own=own)]
        victims = preemptable(session, task, candidates)
        if not suffice(task, node, victims):
            continue
        attempt = Statement(session)
        evicting = False
        for victim in victims_in_order(session, victims, task):
            if _fits(session, task, node):
                break
            attempt.evict(victim)
            evicting = True
        if _fits(session, task, node):
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
    if other.status not in {Status.BOUND, Status.RUNNING} or not other.preemptable or other not in session.gang_of:
        return False
    if task.best_effort and not other.best_effort:
        return False
    theirs, ours = session.gang_of[other], session.gang_of[task]
    return theirs is ours if own else theirs is not ours and theirs.queue == ours.queue


def _fits(session: Session, task: Task, node: Node) -> bool:
    queue = session.queues[session.gang_of[task].queue]
    return not session.refusal(queue, task.request) and not lacking(task.request, node.future_idle())
