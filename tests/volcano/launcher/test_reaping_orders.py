# SPDX-License-Identifier: Apache-2.0
"""Whatever happens between two calls of a reaper, it never takes a living run's Job, and leaves no dead one's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kfp_volcano.errors import NotFoundError, UnavailableError
from pipeline_runs import NS, RUNS, World, job_of

# What may happen to a run, in an order that it may happen in.
LIVES: list[list[str]] = [
    ["start", "submit", "succeed", "finish", "archive"],
    ["start", "submit", "fail", "archive"],
    ["start", "submit", "fail", "retry", "submit", "succeed", "finish"],
    ["start", "submit", "fail", "archive", "start", "submit", "wait"],
    ["start", "submit", "terminate", "wait", "fail"],
    ["start", "submit", "terminate", "archive"],
    ["start", "submit", "archive"],
    ["start", "wait", "submit", "wait"],
    ["start", "submit", "wait", "wait"],
    ["start", "submit", "lose", "submit", "wait"],
]


EVENTS: dict[str, Callable[[World, str], object]] = {
    "start": lambda world, run: world.workflow(run),
    "submit": lambda world, run: world.job(run),
    "succeed": lambda world, run: world.phase(run, "Completed"),
    "finish": lambda world, run: world.change(run, status={"phase": "Succeeded"}),
    "fail": lambda world, run: world.change(run, status={"phase": "Failed"}),
    "retry": lambda world, run: world.change(run, status={"phase": "Running"}),
    "terminate": lambda world, run: world.change(run, activeDeadlineSeconds=0),
    "archive": lambda world, run: world.forget(run),
    "lose": lambda world, run: world.lose(run),
    "wait": lambda world, run: world.wait(60),
}


def lives(world: World, run: str) -> bool:
    try:
        workflow = world.store.get("Workflow", f"run-{run[-4:]}", NS)
    except NotFoundError:
        return False
    ended = workflow["status"]["phase"] in {"Succeeded", "Failed"}
    return not ended and workflow["spec"].get("activeDeadlineSeconds") != 0


class Interrupted:
    """The cluster as a reaper sees it while life goes on: before each look at runs and Jobs something may happen.

    Nothing happens between the last look at a run and the deletion that follows it, a moment that no client can close.
    """

    def __init__(self, world: World, meanwhile: Callable[[], None]) -> None:
        self._world = world
        self._meanwhile = meanwhile
        self._looked = False
        self.wrong: list[str] = []

    def list(self, kind: str, namespace: str = "", labels: Any = None) -> Any:
        if kind in {"Job", "Workflow"}:
            self._meanwhile()
        self._looked = kind == "Workflow"
        return self._world.store.list(kind, namespace, labels)

    def get(self, kind: str, name: str, namespace: str = "") -> Any:
        self._meanwhile()
        return self._world.store.get(kind, name, namespace)

    def delete(self, kind: str, name: str, namespace: str = "", **options: Any) -> None:
        if not self._looked:
            self._meanwhile()
        self._looked = False
        self.wrong += [run for run in RUNS if kind == "Job" and name == job_of(run) and lives(self._world, run)]
        self._world.store.delete(kind, name, namespace, **options)


class Lives:
    """What is still to happen to each run, in its order."""

    def __init__(self, world: World, draw: Callable[[Any], Any]) -> None:
        self._world = world
        self._draw = draw
        self._queues = {run: list(draw(st.sampled_from(LIVES))) for run in RUNS}

    def go_on(self, most: int) -> None:
        """At most so much happens, now to this run and now to that."""
        for run in self._draw(st.lists(st.sampled_from(RUNS), max_size=most)):
            if self._queues[run]:
                EVENTS[self._queues[run].pop(0)](self._world, run)

    def meanwhile(self) -> None:
        """Between two calls of a reaper: life goes on, and the cluster may not answer, or another reaper look."""
        self.go_on(5)
        match self._draw(st.integers(0, 11)):
            case 0:
                raise UnavailableError("no answer")
            case 1:
                self._world.reap()

    def end(self) -> None:
        """All that is left happens."""
        for run, queue in self._queues.items():
            for event in queue:
                EVENTS[event](self._world, run)


@given(data=st.data())
@settings(max_examples=150)
def test_no_order_of_events_costs_a_living_run_its_job(data: st.DataObject) -> None:
    """Runs come, end, are retried and archived, calls fail, and another reaper is at work, between any two calls."""
    world = World()
    runs = Lives(world, data.draw)
    runs.go_on(9)
    for _ in range(3):
        cluster = Interrupted(world, runs.meanwhile)
        with contextlib.suppress(UnavailableError):
            world.reap(cluster)
        assert cluster.wrong == []
    runs.end()
    world.now += 2 * 3600
    living = {job_of(run) for run in RUNS if lives(world, run)}
    before = world.jobs()
    world.reap()
    assert world.jobs() == before & living
