"""The order of things: controllers after every change, then a cycle of the scheduler.

Whoever owns the objects calls these: the embedded cluster when something happened, tests and the simulator in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model import job_controller, scheduler
from kfp_volcano.volcano.model.lifecycle import request_for
from kfp_volcano.volcano.model.queues import open_queues

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.world import World

__all__ = ["run_controllers", "run_scheduler"]


def run_controllers(world: World, now: float) -> None:
    """Let the controllers answer everything that happened, and what follows from their answers, until all is quiet."""
    while world.transitions:
        transition = world.transitions.popleft()
        if transition.kind == "Queue":
            changes = list(open_queues(world.objects))
        else:
            request = request_for(transition, world.objects)
            changes = job_controller.reconcile(world.objects, request, now) if request else []
        for change in changes:
            world.apply(change, now)


def run_scheduler(world: World, now: float) -> None:
    """One cycle of the scheduler; what it changed waits in `transitions` for the controllers."""
    for change in scheduler.cycle(world.objects, now):
        world.apply(change, now)
