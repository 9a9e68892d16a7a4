# SPDX-License-Identifier: Apache-2.0
"""Action `enqueue`: which gangs are let into their queues.

Sources: pkg/scheduler/actions/enqueue/enqueue.go and capacity's JobEnqueueable
(pkg/scheduler/plugins/capacity/capacity.go), Volcano 1.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model.objects import phase_of
from kfp_volcano.volcano.model.order import lines
from kfp_volcano.volcano.model.resources import add, format_quantity

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.gangs import Gang
    from kfp_volcano.volcano.model.session import Session

__all__ = ["enqueue"]


def enqueue(session: Session) -> None:
    """Let in each waiting gang whose minimum fits its queue and that queue's ancestors."""
    queues, gangs = lines(session, (gang for gang in session.gangs if phase_of(gang.group) in {"", "Pending"}))
    while queues:
        queue = queues.pop()
        line = gangs[queue.name]
        if not line:
            continue
        gang = line.pop()
        reason = _refusal(session, gang)
        if reason:
            session.refused[gang] = reason
        else:
            session.enqueued.add(gang)
            for share in queue.lineage:
                share.inqueue = add(share.inqueue, gang.min_resources)
        queues.push(queue)


def _refusal(session: Session, gang: Gang) -> str:
    queue, minimum = session.queues[gang.queue], gang.min_resources
    if not session.sound:
        return "the hierarchy of queues is broken: a queue with children has Jobs"
    if queue.children:
        return f"queue {queue.name} is not a leaf"
    if not queue.open:
        return f"queue {queue.name} is not open"
    for share in queue.lineage:
        over = share.exceeds_enqueued(minimum)
        if over:
            amounts = ", ".join(
                f"{name} (needs {format_quantity(minimum[name])}, queue {share.name} may use"
                f" {format_quantity(share.limit[name])})"
                for name in over
            )
            return f"queue resource quota insufficient: insufficient {amounts}"
    unknown = session.unknown(minimum)
    if unknown:
        return f"queue resource quota insufficient: no node has {', '.join(unknown)}"
    return ""
