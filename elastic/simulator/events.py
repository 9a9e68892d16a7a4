# SPDX-License-Identifier: Apache-2.0
"""The engine for everything that Volcano schedules: events in order of time, and after each, who reacts to it.

At each time at which something happens, all that happens then happens first, in an order that does not depend on that
of the scenario; then Volcano's scheduler has its cycle, then the autoscaler its turns, and so on until both are quiet.
Between a change and the cycle that answers it lie no seconds here, in a cluster one at most.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.elastic.policies.guards import PLACE_S
from kfp_volcano.elastic.simulator.autoscaler import Autoscaler
from kfp_volcano.elastic.simulator.course import Course
from kfp_volcano.elastic.simulator.life import Life, Resize, What
from kfp_volcano.elastic.simulator.observer import Observer
from kfp_volcano.elastic.simulator.outcome import Decided, Outcome
from kfp_volcano.elastic.simulator.scheduler import Scheduler
from kfp_volcano.elastic.simulator.sites import Sites, turns

if TYPE_CHECKING:
    from kfp_volcano.elastic.policies.memory import Mode
    from kfp_volcano.elastic.policies.outlook import Outlook
    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot
    from kfp_volcano.elastic.simulator.autoscaler import Deciding
    from kfp_volcano.elastic.simulator.scenario import Scenario
    from kfp_volcano.elastic.simulator.simulate import Watch

__all__ = ["COOLDOWN_S", "Events"]

COOLDOWN_S = 60.0
"""Of jobs, the default of `elasticity.cooldown`."""
RETURN_S = 10.0
"""Until the gang of a job whose workers were taken by reclaim or preemption is made anew, seconds."""
REPORT_S = 60.0
"""How old what training has reported of itself may be in a snapshot, seconds; not near its end, which guards mind."""


class Event(NamedTuple):
    """Something that happens; `number` tells it from what was planned before and does not hold any more."""

    at: float
    what: What
    name: str
    number: int


class Events:
    """One simulation.

    Args:
        scenario: What is replayed.
        name: Of the policy.
        policies: What decides for a queue; None: gangs keep the sizes that they ask for.
        by_priority: Whether the scenario's priorities count.
        adaptive: Whether jobs choose their batch anew as their size changes.
        every_s: The autoscaler only looks at multiples of so many seconds; None: as in production.
        cooldown_s: Of each job.
    """

    def __init__(
        self,
        scenario: Scenario,
        name: str,
        policies: Deciding | None,
        *,
        by_priority: bool = True,
        adaptive: bool = True,
        every_s: float | None = None,
        cooldown_s: float = COOLDOWN_S,
    ) -> None:
        self._scenario = scenario
        self._name = name
        self._elastic = policies is not None
        self._cooldown_s = cooldown_s
        self._sites = Sites(scenario.nodes)
        self._places = {node.name: number for number, node in enumerate(scenario.nodes)}
        self._down: set[str] = set()
        self._scheduler = Scheduler(scenario.nodes, scenario.queues, by_priority=by_priority)
        self._observer = Observer(scenario.nodes, scenario.queues)
        by_coming = sorted(scenario.jobs, key=lambda job: (job.submitted_at, job.name))
        self._lives = {
            job.name: Life(job, Course(job, job.work.begin(adaptive=adaptive and policies is not None)), rank)
            for rank, job in enumerate(by_coming)
        }
        self._running: dict[str, dict[str, Life]] = {queue.name: {} for queue in scenario.queues}
        """Elastic jobs that run, by queue."""
        self._heap: list[Event] = []
        self._decided: list[Decided] = []
        self._events = 0
        self._now = 0.0
        self._autoscaler: Autoscaler | None = None
        if policies is not None:
            homes = sorted({job.queue for job in scenario.jobs if job.elastic})
            self._autoscaler = Autoscaler(self._observer, self, dict.fromkeys(homes, policies), every_s=every_s)

    def run(self, watch: Watch = lambda _at, _ended: None) -> Outcome:
        """From the beginning until all jobs have ended, or none can go on; see `simulate` for `watch`."""
        for life in self._lives.values():
            if not life.job.placed:
                self._plan(max(0.0, life.job.submitted_at), What.COMES, life.job.name)
        for number, (at, node, back) in enumerate(turns(self._scenario)):
            heapq.heappush(self._heap, Event(at, What.NODE, node, 2 * number + back))
        for life in self._lives.values():
            if life.job.placed:
                self._begin(life)
        self._react()
        left = len(self._lives)
        while left and (at := self._next_at()) < math.inf:
            self._now = at
            while self._heap and self._heap[0].at <= at:
                left -= self._happens(heapq.heappop(self._heap))
            self._react()
            watch(at, len(self._lives) - left)
        jobs = tuple(self._lives[job.name].course.outcome() for job in self._scenario.jobs)
        ends = [job.ended_at for job in jobs if job.ended_at is not None]
        return Outcome(
            scenario=self._scenario.name,
            policy=self._name,
            gpus=self._scenario.gpus,
            jobs=jobs,
            ended_at=max(ends, default=self._now) if not left else self._now,
            decided=tuple(self._decided),
            events=self._events,
        )

    def _next_at(self) -> float:
        """When something happens next: looks of the autoscaler alone keep nothing going."""
        if not self._heap and not any(self._running.values()):
            return math.inf
        at = self._heap[0].at if self._heap else math.inf
        return at if self._autoscaler is None else min(at, self._autoscaler.next_at())

    def _happens(self, event: Event) -> bool:
        """Whether a job ended by it."""
        if event.what is What.NODE:
            self._events += 1
            self._node(event.name, back=bool(event.number % 2))
            return False
        life = self._lives[event.name]
        if event.what is not What.COMES and event.number != life.number:
            return False
        self._events += 1
        match event.what:
            case What.END:
                return self._end(life)
            case What.RESIZED:
                self._resized(life)
            case What.SETTLE:
                self._settle(life)
            case What.COMES:
                self._come(life)
        return False

    def _react(self) -> None:
        """Scheduler and autoscaler, until both are quiet."""
        while True:
            self._cycle()
            if self._autoscaler is None:
                return
            asked = False
            for snapshot, decisions in self._autoscaler.turns(self._now):
                self._events += 1
                for decision in decisions:
                    if decision.resizes:
                        self._ask(snapshot, decision)
                        asked = True
            if not asked:
                return

    def _cycle(self) -> None:
        if not self._scheduler.lacking:
            return
        done = self._scheduler.cycle()
        for member in dict.fromkeys((*done.placed, *done.robbed)):
            life = self._lives[member.job.name]
            if life.workers and sum(map(bool, member.nodes)) < member.core:
                self._break(life, back_s=RETURN_S)
            else:
                self._placed(life)

    # What happens to jobs.

    def _come(self, life: Life) -> None:
        """It waits for its gang: of an elastic job its minimum, of another all that it asks for."""
        job = life.job
        least = job.min_workers if self._elastic and job.elastic else job.workers
        life.member = self._scheduler.submit(job, least, life.rank)
        life.workers = 0
        life.course.advance(self._now)
        self._show(life)

    def _begin(self, life: Life) -> None:
        """It has its workers as the scenario begins."""
        job = life.job
        self._come(life)
        assert life.member is not None  # noqa: S101 - it has come
        self._scheduler.begin(life.member, job.placed)
        life.workers = len(job.placed)
        if self._elastic and job.elastic:
            self._running[job.queue][job.name] = life
        self._hold(life, 0.0)
        self._show(life)

    def _placed(self, life: Life) -> None:
        """Workers of it got nodes, or lost them to others."""
        job, member, resize = life.job, life.member, life.resize
        assert member is not None  # noqa: S101 - it is there
        if not life.workers:
            life.workers = member.core
            cost_s, life.broken = (job.restart_s if life.broken else job.start_s), False
            self._hold(life, cost_s)
            if self._elastic and job.elastic:
                self._running[job.queue][job.name] = life
        elif member.complete:
            life.waiting_since = None
            if resize is not None and resize.what is What.SETTLE:
                resize.what, resize.due_at = What.RESIZED, self._now + job.resize_s
                life.course.resizes += 1
            self._hold(life, job.resize_s)
        else:
            life.waiting_since = self._now if life.waiting_since is None else life.waiting_since
            if resize is None:
                self._hold(life, job.resize_s)
        self._show(life)

    def _ask(self, snapshot: QueueSnapshot, decision: Decision) -> None:
        """A resize begins: smaller jobs stop for a moment and then let go, larger ones do when they have the nodes."""
        life = self._lives[decision.job]
        member, job, now = life.member, life.job, snapshot.at
        assert member is not None  # noqa: S101 - it runs
        life.course.advance(now)
        if decision.to_workers > decision.from_workers:
            resize = Resize(
                at=now,
                from_workers=life.workers,
                to_workers=decision.to_workers,
                due_at=now + PLACE_S,
                what=What.SETTLE,
            )
            self._scheduler.grow(member, decision.to_workers)
            life.waiting_since = now
        else:
            leaving = self._scheduler.let_go(member, decision.to_workers)
            resize = Resize(
                at=now,
                from_workers=life.workers,
                to_workers=decision.to_workers,
                due_at=now + job.resize_s,
                what=What.RESIZED,
                leaving=leaving,
            )
            if member.complete:
                life.waiting_since = None
            life.course.pause(job.resize_s)
            life.course.resizes += 1
        life.workers, life.resize = decision.to_workers, resize
        self._decided.append(
            Decided(
                at=now,
                job=job.name,
                from_workers=decision.from_workers,
                to_workers=decision.to_workers,
                reason=decision.reason.value,
                explanation=decision.explanation,
            )
        )
        self._replan(life)
        self._show(life)

    def _resized(self, life: Life) -> None:
        """Training goes on at the new size."""
        resize, member = life.resize, life.member
        if resize is None or member is None:
            return
        life.course.advance(self._now)
        self._scheduler.gone(member, resize.leaving)
        shrunk = resize.to_workers < resize.from_workers
        life.resized(self._now)
        if shrunk:
            self._hold(life, 0.0)
        self._show(life)

    def _settle(self, life: Life) -> None:
        """Workers that found no node in time are given up."""
        resize, member = life.resize, life.member
        if resize is None or member is None:
            return
        got = sum(map(bool, member.nodes))
        size = max((size for size in life.sizes if size <= got), default=life.job.min_workers)
        leaving = self._scheduler.let_go(member, size)
        self._scheduler.gone(member, leaving)
        life.workers, life.waiting_since = size, None
        life.course.advance(self._now)
        resize.to_workers = size
        same = size == resize.from_workers
        life.course.resizes += not same
        life.resized(self._now, failed=same)
        self._hold(life, life.job.resize_s)
        self._show(life)

    def _end(self, life: Life) -> bool:
        life.course.advance(self._now)
        if life.course.ended_at is None:
            self._replan(life)
            return False
        self._leave(life)
        return True

    def _leave(self, life: Life) -> None:
        """It holds nothing any more, and is not there."""
        member, job = life.member, life.job
        if member is None:
            return
        if life.resize is not None:
            self._scheduler.gone(member, life.resize.leaving)
        self._scheduler.end(member)
        self._running[job.queue].pop(job.name, None)
        life.leave()
        if self._autoscaler is not None:
            self._observer.forget(job)

    def _break(self, life: Life, *, back_s: float = 0.0) -> None:
        """Its gang has lost a part: it waits anew as a whole, after a while."""
        life.course.advance(self._now)
        self._leave(life)
        life.broken = True
        life.course.restarts += 1
        life.course.hold((), self._sites.placement(()), 0.0)
        self._plan(self._now + back_s, What.COMES, life.job.name)

    def _node(self, name: str, *, back: bool) -> None:
        """A node comes back; or it goes, and the gangs that have a part there wait anew as a whole."""
        if back:
            self._scheduler.up(name)
        else:
            hit = [life for life in self._lives.values() if life.member is not None and name in life.member.nodes]
            for life in hit:
                life.course.advance(self._now)
                if life.course.ended_at is not None:
                    continue
                self._break(life)
            for life in self._lives.values():  # what was being let go there is gone with it
                if life.resize is not None and life.member is not None:
                    lost = [task for task in life.resize.leaving if task.node == name]
                    self._scheduler.gone(life.member, lost)
                    life.resize.leaving = [task for task in life.resize.leaving if task.node != name]
            self._scheduler.down(name)
        self._observer.there(name, there=back)

    # Books.

    def _hold(self, life: Life, cost_s: float) -> None:
        """Train from now on where its workers are."""
        assert life.member is not None  # noqa: S101 - it runs
        workers = Counter(filter(None, life.member.nodes))
        ordered = sorted(workers.items(), key=lambda each: self._places[each[0]])
        spots = tuple((node, count * life.job.gpus_per_worker) for node, count in ordered)
        life.course.advance(self._now)
        if life.course.ended_at is None and spots != life.course.spots:
            life.course.hold(spots, self._sites.placement(spots), cost_s)
        self._replan(life)

    def _replan(self, life: Life) -> None:
        """What was planned for it does not hold any more, but this."""
        life.number += 1
        if life.resize is not None:
            self._plan(life.resize.due_at, life.resize.what, life.job.name)
        at = life.course.ends_at()
        if at < math.inf:
            self._plan(at, What.END, life.job.name)

    def _plan(self, at: float, what: What, name: str) -> None:
        heapq.heappush(self._heap, Event(at, what, name, self._lives[name].number))

    # What the autoscaler sees.

    def snapshot(self, queue: str, at: float) -> QueueSnapshot:
        """A queue as it is now; see `autoscaler.Sight`."""
        found = {}
        for name, life in self._running[queue].items():
            seen = self._observer.seen(name)
            if seen is None:
                continue
            soon = seen.remaining_s is not None and seen.remaining_s < 2 * REPORT_S
            if soon or at - life.reported_at >= REPORT_S:
                seen = life.reporting(seen, at)
                self._observer.renew(life.job, seen)
            found[name] = seen
        return self._observer.snapshot(queue, at, found)

    def outlook(self, queue: str, at: float, mode: Mode | None) -> Outlook | None:
        """The same in sums; see `autoscaler.Sight`."""
        return self._observer.outlook(queue, at, mode)

    def _show(self, life: Life) -> None:
        """Tell the observer how a job is."""
        if self._autoscaler is None or life.member is None:
            return
        shape = self._observer.shape(life.job)
        seen = life.elastic_job(shape, self._cooldown_s)
        if seen is not None:
            seen = life.reporting(seen, self._now)
        self._observer.see(life.job, life.held(), life.gang(shape), seen)
