# SPDX-License-Identifier: Apache-2.0
"""The engine for schedulers that place all jobs themselves at intervals.

Jobs go on for exactly one interval at a time, and then the scheduler looks, as in the simulator published with Pollux
(OSDI'21 artifact, `simulator.py`): a job that comes is placed at the first look after. What was published rests on it.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.allocators.allocator import Present
from kfp_volcano.elastic.simulator.course import Course
from kfp_volcano.elastic.simulator.outcome import Outcome
from kfp_volcano.elastic.simulator.sites import Sites, turns

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.allocators.allocator import Allocator, Spots
    from kfp_volcano.elastic.simulator.scenario import Scenario
    from kfp_volcano.elastic.simulator.simulate import Watch

__all__ = ["Intervals"]

_IDLE_LOOKS = 60
"""After so many looks at which nothing runs, nothing comes and no node returns, no job will ever run."""


class Intervals:
    """One simulation.

    Args:
        scenario: What is replayed.
        allocator: Who places the jobs; made for this simulation.
    """

    def __init__(self, scenario: Scenario, allocator: Allocator) -> None:
        self._scenario = scenario
        self._allocator = allocator
        self._sites = Sites(scenario.nodes)
        self._courses = [Course(job, job.work.begin(adaptive=allocator.adaptive)) for job in scenario.jobs]
        by_coming = sorted(self._courses, key=lambda course: course.job.submitted_at)
        self._coming = deque(by_coming)
        self._rank = {course: rank for rank, course in enumerate(self._courses)}
        self._present: dict[Course, None] = {}
        self._turns = deque(turns(scenario))
        self._down: set[str] = set()
        self._broken: set[Course] = set()
        """Jobs whose gang was broken and that have not come back yet."""
        self._events = 0

    def run(self, watch: Watch = lambda _at, _ended: None) -> Outcome:
        """From the beginning until all jobs have ended, or none can go on; see `simulate` for `watch`."""
        interval, looks, idle = self._scenario.interval_s, 0, 0
        self._come(0.0)
        for course in self._present:
            if course.job.placed:
                self._hold(course, _spots(course), 0.0)
        while (self._present or self._coming) and idle < _IDLE_LOOKS:
            looks += 1
            if not self._present:  # nothing to look at before the next job comes
                looks = max(looks, -int(-self._coming[0].job.submitted_at // interval))
            at = looks * interval
            self._step(at)
            self._come(at)
            self._look(at)
            watch(at, len(self._courses) - len(self._present) - len(self._coming))
            running = any(course.spots for course in self._present)
            idle = 0 if running or self._coming or self._turns else idle + 1
        jobs = tuple(course.outcome() for course in self._courses)
        ends = [job.ended_at for job in jobs if job.ended_at is not None]
        return Outcome(
            scenario=self._scenario.name,
            policy=self._allocator.name,
            gpus=self._scenario.gpus,
            jobs=jobs,
            ended_at=looks * interval if self._present else max(ends, default=0.0),
            events=self._events,
        )

    def _come(self, at: float) -> None:
        """Take up the jobs that have been submitted until then."""
        came = False
        while self._coming and self._coming[0].job.submitted_at <= at:
            course = self._coming.popleft()
            course.advance(at)
            self._present[course] = None
            self._events += 1
            came = True
        if came:
            self._present = dict.fromkeys(sorted(self._present, key=self._rank.__getitem__))

    def _step(self, at: float) -> None:
        """All jobs go on until then; those whose node goes meanwhile, until it goes."""
        while self._turns and self._turns[0][0] < at:
            when, node, back = self._turns.popleft()
            self._turn(when, node, back=back)
        for course in list(self._present):
            course.advance(at)
            if course.ended_at is not None:
                del self._present[course]
                self._events += 1

    def _turn(self, when: float, node: str, *, back: bool) -> None:
        """A node goes, and breaks the gangs that have a part of them there; or it comes back."""
        self._events += 1
        if back:
            self._down.discard(node)
            return
        self._down.add(node)
        for course in self._present:
            if any(name == node for name, _ in course.spots):
                course.advance(when)
                if course.ended_at is None:
                    course.hold((), self._sites.placement(()), 0.0)
                    course.restarts += 1
                    self._broken.add(course)

    def _look(self, at: float) -> None:
        """Ask the scheduler, and give the jobs what it says."""
        if not self._present:
            return
        self._events += 1
        jobs = [
            Present(
                job=course.job,
                training=course.training,
                spots=course.spots,
                served_gpu_s=course.served_gpu_s,
                restarts=course.resizes + course.restarts,
            )
            for course in self._present
        ]
        nodes = [node for node in self._scenario.nodes if node.name not in self._down]
        given = self._allocator.allocate(jobs, nodes, at)
        for course in self._present:
            spots = given.get(course.job.name, ())
            if spots == course.spots:
                continue
            job = course.job
            if course in self._broken and spots:
                cost_s = job.restart_s
                self._broken.discard(course)
            elif course.started_at is None:
                cost_s = job.start_s
            else:
                cost_s = job.resize_s
                course.resizes += bool(spots)
            self._hold(course, spots, cost_s)

    def _hold(self, course: Course, spots: Spots, cost_s: float) -> None:
        course.hold(spots, self._sites.placement(spots), cost_s)


def _spots(course: Course) -> Spots:
    """What a job holds as the scenario begins."""
    workers = Counter(course.job.placed)
    return tuple((node, count * course.job.gpus_per_worker) for node, count in workers.items())
