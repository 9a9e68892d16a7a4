# SPDX-License-Identifier: Apache-2.0
"""Actions `gangreclaim` and `gangpreempt`: a starving gang takes what all its waiting pods need at once.

Sources: pkg/scheduler/actions/{gangreclaim,gangpreempt}, pkg/scheduler/actions/utils/{simulate,util}.go, Volcano
1.15.1, on a cluster without HyperNodes: its only domain is the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.allocate import best_node
from kfp_volcano.volcano.model.bundles import Bundle, allowed_bundles, bundles_of, in_order
from kfp_volcano.volcano.model.order import gang_key, lines, victim_queue_order
from kfp_volcano.volcano.model.reclaim import may_reclaim
from kfp_volcano.volcano.model.resources import Resources, add, lacking
from kfp_volcano.volcano.model.statement import Statement
from kfp_volcano.volcano.model.tasks import Status, says_preemptable
from kfp_volcano.volcano.model.victims import evictable_by_gang

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.volcano.model.gangs import Gang
    from kfp_volcano.volcano.model.session import Session
    from kfp_volcano.volcano.model.tasks import Task

__all__ = ["gangpreempt", "gangreclaim"]


def gangreclaim(session: Session) -> None:
    """Starving gangs take from other queues."""
    _serve(session, preempt=False)


def gangpreempt(session: Session) -> None:
    """Starving gangs take from gangs of lower priority in their own queue."""
    _serve(session, preempt=True)


def _serve(session: Session, *, preempt: bool) -> None:
    queues, gangs = lines(session, [gang for gang in session.active() if gang.starving])
    while queues:
        line = gangs[queues.pop().name]
        while line:
            _serve_gang(session, line.pop(), preempt=preempt)


def _serve_gang(session: Session, gang: Gang, *, preempt: bool) -> None:
    """Take one bundle more at a time until all waiting pods of a gang have a place; nothing if they never do."""
    pending = [task for task in gang.pending() if not task.best_effort]
    if not pending or not (preempt or may_reclaim(session, gang, pending)):
        return
    need = _sum(pending)
    room: dict[str, int] = {}
    for node in session.nodes.values():
        room = add(add(room, node.idle), node.releasing)
    taken: list[Task] = []
    for bundle in _bundles(session, gang, need, preempt=preempt):
        taken += bundle.tasks
        if lacking(need, add(room, _sum(taken))):
            continue
        statement = Statement(session)
        for victim in taken:
            statement.evict(victim)
        if _place_all(session, statement, gang, pending):
            statement.commit()
            return
        statement.discard()


def _place_all(session: Session, statement: Statement, gang: Gang, pending: list[Task]) -> bool:
    """Promise each pod a node; whether all got one and the gang may start with them."""
    for task in pending:
        fitting = [
            node
            for node in session.nodes.values()
            if not node.refusal(task) and not node.misfit(task, node.future_idle())
        ]
        if session.refusal(session.queues[gang.queue], task.request) or not fitting:
            return False
        statement.pipeline(task, best_node(task, fitting), evicting=True)
    return gang.pipelined


def _bundles(session: Session, gang: Gang, need: Resources, *, preempt: bool) -> list[Bundle]:
    candidates: dict[Gang, list[Task]] = {}
    for other in _candidates(session, gang, preempt=preempt):
        candidates.setdefault(session.gang_of[other], []).append(other)
    bundles = [bundle for owner, tasks in candidates.items() for bundle in bundles_of(owner, tasks)]
    by_queue = victim_queue_order(session.queues[gang.queue])

    def rank(owner: Gang) -> object:
        if preempt:
            priority, ready, share, order = gang_key(owner)
            return -priority, not ready, -share, -order
        return by_queue(session.queues[owner.queue])

    bundles = in_order(bundles, need, rank)
    flat = [task for bundle in bundles for task in bundle.tasks]
    allowed = set(evictable_by_gang(session, gang, flat, preempt=preempt))
    return in_order(allowed_bundles(bundles, allowed), need, rank)


def _candidates(session: Session, gang: Gang, *, preempt: bool) -> Iterator[Task]:
    movable = {Status.RUNNING, Status.BOUND} if preempt else {Status.RUNNING}
    for node in session.nodes.values():
        for other in node.tasks:
            owner = session.gang_of.get(other)
            if (
                owner is None
                or other.status not in movable
                or not other.preemptable
                or not says_preemptable(owner.group)
            ):
                continue
            if preempt:
                if owner.queue == gang.queue and owner.priority < gang.priority:
                    yield other
            elif owner.queue != gang.queue and session.queues[owner.queue].reclaimable:
                yield other


def _sum(tasks: list[Task]) -> dict[str, int]:
    total: dict[str, int] = {}
    for task in tasks:
        total = add(total, task.request)
    return total
