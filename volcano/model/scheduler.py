"""One cycle of the scheduler: which gangs may enter, which pods get a node, and what is said about it.

Actions `enqueue` and `allocate` with the plugins priority, gang, drf and capacity (hierarchical), as in Volcano's
1.15.1 pkg/scheduler. Of several nodes with room the fullest in GPUs is taken.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.objects import (
    Change,
    Key,
    Manifest,
    Objects,
    Update,
    key_of,
    phase_of,
    status_of,
    time_text,
)
from kfp_volcano.volcano.model.resources import add, format_quantity, quantities
from kfp_volcano.volcano.model.session import Gang, Node, Session, Task, open_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["cycle"]

_ENDED = frozenset({"Succeeded", "Failed"})


def cycle(objects: Objects, now: float) -> list[Change]:
    """What one scheduling cycle changes: pods' nodes, PodGroups' phases and conditions, queues' allocations."""
    session = open_session(objects)
    refused = _enqueue(session)
    bound = _allocate(session)
    return [*_bindings(session, bound, now), *_groups(session, refused, now), *_queues(session, objects)]


def _enqueue(session: Session) -> dict[Key, str]:
    """PodGroup Pending to Inqueue where its minimum fits its queue; why not, for the others."""
    refused = {}
    waiting = [gang for gang in session.gangs if phase_of(gang.group) in {"", "Pending"}]
    for gang in sorted(waiting, key=lambda each: (_queue_order(session, each.queue), _gang_order(session, each))):
        reason = _enqueue_refusal(session, gang)
        if reason:
            refused[key_of(gang.group)] = reason
            continue
        session.enqueued.add(key_of(gang.group))
        for share in session.lineage(gang.queue):
            share.inqueue = add(share.inqueue, gang.min_resources)
    return refused


def _enqueue_refusal(session: Session, gang: Gang) -> str:
    lineage = list(session.lineage(gang.queue))
    if not lineage:
        return f"queue {gang.queue} not found"
    if not lineage[0].open:
        return f"queue {gang.queue} is not open"
    minimum = gang.min_resources
    for share in lineage:
        over = share.exceeds_enqueued(minimum)
        if over:
            amounts = ", ".join(
                f"{name} (needs {format_quantity(minimum[name])}, queue {share.name} may use"
                f" {format_quantity(share.limit[name])})"
                for name in over
            )
            return f"queue resource quota insufficient: insufficient {amounts}"
    return ""


def _allocate(session: Session) -> list[Task]:
    """Give nodes to pods: gangs whole or not at all, then what is above the minimum one by one."""
    bound: list[Task] = []
    candidates: dict[str, list[tuple[Any, int, Gang]]] = {}
    waiting: dict[int, list[Task]] = {}
    for gang in session.gangs:
        entered = phase_of(gang.group) not in {"", "Pending"} or key_of(gang.group) in session.enqueued
        tasks = gang.pending()
        if not entered or not tasks or gang.shortage or gang.queue not in session.queues:
            continue
        waiting[gang.order] = tasks
        candidates.setdefault(gang.queue, []).append((_gang_order(session, gang), gang.order, gang))
    for gangs in candidates.values():
        heapq.heapify(gangs)
    queues = [(_queue_order(session, name), name) for name in candidates]
    heapq.heapify(queues)
    while queues:
        _, name = heapq.heappop(queues)
        gangs = candidates[name]
        if not gangs:
            continue
        _, order, gang = heapq.heappop(gangs)
        placed = _place(session, gang, waiting[order])
        bound.extend(placed)
        if placed and waiting[order]:
            heapq.heappush(gangs, (_gang_order(session, gang), order, gang))
        heapq.heappush(queues, (_queue_order(session, name), name))
    return bound


def _place(session: Session, gang: Gang, waiting: list[Task]) -> list[Task]:
    """Place pods of a gang until it may start, or one more of a gang that has; all are undone if it may not."""
    placed: list[Task] = []
    while waiting:
        task = waiting.pop(0)
        node = _node_for(session, gang, task)
        if node is None:
            continue
        session.allocate(gang, task, node)
        placed.append(task)
        if gang.committable:
            return placed
    for task in placed:
        session.release(gang, task)
        task.message = task.message or "the rest of its gang does not fit"
    return []


def _node_for(session: Session, gang: Gang, task: Task) -> Node | None:
    """The fullest node with room for a pod, or None with the reason on the pod."""
    for share in session.lineage(gang.queue):
        over = share.exceeds(task.request)
        if over or not share.open:
            task.message = (
                f"queue {share.name} may not use more {', '.join(over)}" if over else f"queue {share.name} is not open"
            )
            return None
    refusals: dict[str, int] = {}
    best: Node | None = None
    for node in session.nodes:
        refusal = node.refusal(task)
        if refusal:
            refusals[refusal] = refusals.get(refusal, 0) + 1
        elif best is None or node.idle.get(GPU, 0) < best.idle.get(GPU, 0):
            best = node
    if best is None:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(refusals.items()))
        task.message = f"0/{len(session.nodes)} nodes are available: {reasons or 'there are none'}."
    return best


def _queue_order(session: Session, queue: str) -> tuple[Any, ...]:
    """Priority, then the share in use of what is deserved, compared where two queues' lines part."""
    lineage = list(session.lineage(queue))
    if not lineage:
        return (0, (), queue)
    shares = tuple((share.share, not share.deserved) for share in reversed(lineage) if share.parent is not None)
    return (-lineage[0].priority, shares, queue)


def _gang_order(session: Session, gang: Gang) -> tuple[Any, ...]:
    """Priority, gangs not yet complete before complete ones, smaller dominant share, age (priority, gang, drf)."""
    held = gang.allocated
    dominant = max((held[name] / session.total[name] for name in held if session.total.get(name)), default=0.0)
    return (-gang.priority, gang.ready, dominant, gang.order)


def _bindings(session: Session, bound: list[Task], now: float) -> Iterator[Change]:
    placed = {task.key for task in bound}
    for gang in session.gangs:
        for task in gang.tasks:
            if task.key in placed:
                pod = {**task.pod, "spec": {**task.pod["spec"], "nodeName": task.node}}
                yield _with_condition(pod, {"type": "PodScheduled", "status": "True"}, now)
            elif task.pending and task.message:
                condition = {
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": task.message,
                }  # fmt: skip
                yield _with_condition(task.pod, condition, now)


def _groups(session: Session, refused: Mapping[Key, str], now: float) -> Iterator[Change]:
    for gang in session.gangs:
        key = key_of(gang.group)
        before = phase_of(gang.group)
        group = gang.group
        unschedulable = False
        if key in refused:
            group = _with_unschedulable(group, refused[key], now)
        elif gang.tasks and not gang.ready:
            unschedulable = True
            group = _with_unschedulable(group, _why_unready(gang), now)
        elif gang.tasks:
            reason = "tasks in gang are ready to be scheduled"
            group = _with_condition(
                group, {"type": "Scheduled", "status": "True", "reason": reason, "message": ""}, now
            ).manifest
        phase = _group_phase(
            gang, "Inqueue" if key in session.enqueued else before or "Pending", unschedulable=unschedulable
        )
        ended = {
            each: sum(task.phase == each and not task.releasing for task in gang.tasks)
            for each in ("Running", "Succeeded", "Failed")
        }
        status = {**status_of(group), "phase": phase, **{name.lower(): count for name, count in ended.items()}}
        if status != status_of(gang.group):
            yield Update({**group, "status": status})


def _group_phase(gang: Gang, phase: str, *, unschedulable: bool) -> str:
    """As getPodGroupPhase does (pkg/scheduler/framework/session.go)."""
    if unschedulable and any(task.phase == "Running" and not task.releasing for task in gang.tasks):
        return "Unknown"
    ended = sum(task.phase in _ENDED and not task.releasing for task in gang.tasks)
    scheduled = gang.allocated_count + ended
    if gang.tasks and scheduled >= gang.minimum:
        return "Completed" if scheduled == ended else "Running"
    return phase if phase == "Inqueue" else "Pending"


def _why_unready(gang: Gang) -> str:
    missing = gang.minimum - gang.ready_count
    reasons = dict.fromkeys(task.message for task in gang.tasks if task.message)
    if gang.shortage:
        reasons = {gang.shortage: None}
    return f"{missing}/{len(gang.tasks)} tasks in gang unschedulable: {'; '.join(reasons) or 'pod group is not ready'}"


def _with_unschedulable(group: Manifest, message: str, now: float) -> Manifest:
    condition = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": message}
    return _with_condition(group, condition, now).manifest


def _with_condition(manifest: Manifest, condition: Mapping[str, str], now: float) -> Update:
    """The object with this condition as its newest; untouched where it says so already."""
    conditions = list(status_of(manifest).get("conditions") or ())
    latest = conditions[-1] if conditions else {}
    if {**latest, **condition} == latest:
        return Update(manifest)
    kept = [each for each in conditions if each["type"] != condition["type"]]
    stated = {**condition, "lastTransitionTime": time_text(now)}
    return Update({**manifest, "status": {**status_of(manifest), "conditions": [*kept, stated]}})


def _queues(session: Session, objects: Objects) -> Iterator[Change]:
    for name, share in session.queues.items():
        queue = objects["Queue"]["", name]
        allocated = quantities(share.allocated)
        if allocated != status_of(queue).get("allocated"):
            yield Update({**queue, "status": {**status_of(queue), "allocated": allocated}})
