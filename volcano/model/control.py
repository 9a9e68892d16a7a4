# SPDX-License-Identifier: Apache-2.0
"""The order of things: controllers after every change, then a cycle of the scheduler.

Whoever owns the objects calls these: the embedded cluster when something happened, tests and the simulator in turn.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kfp_volcano.volcano.model import job_controller, scheduler
from kfp_volcano.volcano.model.commands import command_request
from kfp_volcano.volcano.model.configuration import CLASSIC
from kfp_volcano.volcano.model.lifecycle import Request, action_for, request_for
from kfp_volcano.volcano.model.objects import Delete, Transition, key_of
from kfp_volcano.volcano.model.queue_controller import QueueRequest, queue_request_for, reconcile_queue

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.configuration import Configuration
    from kfp_volcano.volcano.model.world import World

__all__ = ["run_controllers", "run_scheduler"]


def run_controllers(world: World, now: float) -> None:
    """Let the controllers answer everything that happened, and what follows from their answers, until all is quiet."""
    for delayed, action in world.delays.take_due(now):
        _act(world, delayed, action, now)
    while world.transitions:
        requests = deque(_requests(world, world.transitions.popleft(), now))
        while requests:
            request = requests.popleft()
            if isinstance(request, Request):
                _answer(world, request, now)
                continue
            changes, more = reconcile_queue(world.objects, request)
            requests.extend(more)
            for change in changes:
                world.apply(change, now)


def run_scheduler(world: World, now: float, configuration: Configuration = CLASSIC) -> None:
    """One cycle of the scheduler; what it changed waits in `transitions` for the controllers."""
    for change in scheduler.cycle(world.objects, now, configuration):
        world.apply(change, now)


def _answer(world: World, request: Request, now: float) -> None:
    """Carry out what a Job's policies say, or put it off."""
    world.delays.overtaken(request)
    job = world.objects.get("Job", {}).get(request.job)
    if job is None:
        return
    action, delay = action_for(job, request)
    if delay:
        world.delays.add(request, action, now + delay)
    else:
        _act(world, request, action, now)


def _act(world: World, request: Request, action: str, now: float) -> None:
    for change in job_controller.reconcile(world.objects, request, action, now):
        world.apply(change, now)
    world.delays.done(request, action)


def _requests(world: World, transition: Transition, now: float) -> list[Request | QueueRequest]:
    if transition.kind == "Command":
        asked = command_request(transition.new) if transition.old is None and transition.new else None
        if asked is None or transition.new is None:
            return []
        world.apply(Delete("Command", key_of(transition.new)), now)
        return [asked]
    if transition.kind == "PriorityClass":
        return [Request(key) for key in world.objects.get("Job", {})]
    found: list[Request | QueueRequest] = []
    queue = queue_request_for(transition)
    job = request_for(transition, world.objects)
    if queue is not None:
        found.append(queue)
    if job is not None:
        found.append(job)
    return found
