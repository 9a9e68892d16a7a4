# SPDX-License-Identifier: Apache-2.0
"""Action `reclaim`: gangs below their minimum take pods' places from other queues.

Source: pkg/scheduler/actions/reclaim/reclaim.go, Volcano 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.order import lines, victims_in_order
from kfp_volcano.volcano.model.resources import add, lacking
from kfp_volcano.volcano.model.statement import Statement
from kfp_volcano.volcano.model.tasks import Status
from kfp_volcano.volcano.model.victims import reclaimable, suffice

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.gangs import Gang
    from kfp_volcano.volcano.model.nodes import Node
    from kfp_volcano.volcano.model.session import Session
    from kfp_volcano.volcano.model.tasks import Task

__all__ = ["may_reclaim", "reclaim"]


def reclaim(session: Session) -> None:
    """Serve the starving gangs of queues that deserve more; what does not complete a gang is undone."""
    queues, gangs = lines(session, [gang for gang in session.active() if gang.starving])
    while queues:
        queue = queues.pop()
        line = gangs[queue.name]
        while line:
            gang = line.pop()
            statement = Statement(session)
            for task in gang.pending():
                if not gang.starving:
                    break
                if task.may_preempt and may_reclaim(session, gang, [task]):
                    _reclaim_for(session, statement, task)
            if gang.pipelined:
                statement.commit()
            else:
                statement.discard()


def may_reclaim(session: Session, gang: Gang, tasks: list[Task]) -> bool:
    """Whether a queue may take from others for these pods (capacity's Preemptive).

    It has to be open and stay below its own limit, and within what it deserves of at least one of the resources.
    """
    queue = session.queues[gang.queue]
    wanted: dict[str, int] = {}
    for task in tasks:
        wanted = add(wanted, task.request)
    return queue.open and not queue.exceeds(wanted) and queue.deserves_more(wanted)


def _reclaim_for(session: Session, statement: Statement, task: Task) -> None:
    """Promise a pod the first node on which enough can be taken."""
    for node in session.nodes.values():
        if node.refusal(task):
            continue
        candidates = [other for other in node.tasks if _may_go(session, other, task)]
        if not candidates:
            continue
        victims = reclaimable(session, task, candidates)
        if not suffice(task, node, victims):
            continue
        attempt = Statement(session)
        evicting = _evict_until_fits(session, attempt, task, node, victims)
        if node.misfit(task, node.future_idle()):
            attempt.discard()
            continue
        attempt.pipeline(task, node, evicting=evicting)
        statement.absorb(attempt)
        return


def _evict_until_fits(session: Session, attempt: Statement, task: Task, node: Node, victims: list[Task]) -> bool:
    """Evict on a node until a pod fits; whether any had to go."""
    evicting = False
    for victim in victims_in_order(session, victims, task):
        if not lacking(task.request, node.future_idle()):
            break
        attempt.evict(victim)
        evicting = True
    return evicting


def _may_go(session: Session, other: Task, task: Task) -> bool:
    if other.status is not Status.RUNNING or not other.preemptable or other not in session.gang_of:
        return False
    queue = session.gang_of[other].queue
    return queue != session.gang_of[task].queue and session.queues[queue].reclaimable
