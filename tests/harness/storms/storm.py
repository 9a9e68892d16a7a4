# SPDX-License-Identifier: Apache-2.0
"""One run: a cluster and its people in virtual time, autoscalers that lead its queues, and faults until they heal."""

from __future__ import annotations

import heapq
import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from kfp_volcano.elastic.autoscaler.leading import lease_name
from kfp_volcano.elastic.policies.policy import Decision
from kfp_volcano.schemas.names import SYSTEM_NAMESPACE
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.model.objects import Transition
from simulation.faults import Faults
from simulation.server import Server
from simulation.threads import Turns
from storms.cluster import Cluster
from storms.kubelet import Kubelet
from storms.people import People
from storms.program import Program
from storms.replicas import Replicas
from storms.settled import unsettled
from storms.weather import Weather
from storms.witness import Witness

__all__ = ["QUIET_S", "SETTLE_S", "START", "Storm"]

START = 1_796_000_000.0
STORM_S = 600.0
"""How long there are faults, and people who change their minds."""
SETTLE_S = 1500.0
"""After healing, until when everything must be settled: two requests that nobody carries out (600 s each) one after
the other, and then a resize (300 s) that fails."""
QUIET_S = 620.0
"""How long nothing may change then: longer than any cooldown, expiry or open breaker."""


class Storm:
    """A run with a seed: the same each time; `run` returns when it is over, and what did not hold is in `problems`."""

    def __init__(self, seed: int, rate: float = 0.02) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.turns = Turns(START, self._pass, self._failed)
        self.faults = Faults(Random(seed + 1), self.random.choice([0.0, rate / 2, rate, 2 * rate]))
        self.faults.kills = self.random.choice([0, 2, 4, 8])
        self._settled_at: int | None = None
        self.problems: list[str] = []
        self.story: list[str] = []
        self.happened: Counter[str] = Counter()
        """What went wrong, and what was done, and how often."""
        self.down_until = 0.0
        """Until when the API server answers nobody."""
        self.killed = 0
        self.writer: Program | None = None
        """Whose request is being carried out."""
        self.store = Store(clock=self.turns.time)
        self.server = Server(self.store)
        self.changes: Counter[str] = Counter()
        self.news: dict[str, Any] = {
            kind: self.turns.Condition()
            for kind in ("Queue", "PodGroup", "Job", "Pod", "Node", "PriorityClass", "Lease", "Namespace")
        }
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.witness = Witness(self)
        self.cluster = Cluster(self)
        self.kubelet = Kubelet(self)
        self.people = People(self)
        self.replicas = Replicas(self)
        self.weather = Weather(self)
        self.store.listen(self._changed)

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self.turns.now

    def run(self) -> None:
        """Storm, healing, and what is left then."""
        try:
            self._begin()
            for seconds, then in ((STORM_S, self._heal), (SETTLE_S, self._settle), (QUIET_S, self._settle)):
                self._live(seconds)
                if self.problems:
                    return
                then()
        finally:
            for program in self.replicas.all + self.people.programs:
                program.kill()
            self.turns.park(self.now)

    def _begin(self) -> None:
        self.cluster.build()
        self.people.begin()
        self.replicas.start()
        self.weather.begin()

    def _heal(self) -> None:
        self.say("the faults are over, and nobody changes anything any more")
        self.weather.heal()
        self.people.leave()
        self.cluster.heal()

    def _settle(self) -> None:
        """Everything has come to rest by now: what does so first, and what has stayed so later."""
        for what in unsettled(self):
            self.broken(what)
        for what in self.witness.writes[self._settled_at :] if self._settled_at is not None else ():
            self.broken(f"it does not come to rest: {what}")
        self._settled_at = len(self.witness.writes)

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        """Have something done later."""
        heapq.heappush(self._events, (self.now + delay_s, next(self._numbers), act))

    def say(self, what: str) -> None:
        """Into the story."""
        self.story.append(f"{self.now - START:8.2f} {what}")

    def broken(self, what: str) -> None:
        """A law does not hold."""
        self.say(f"!! {what}")
        self.problems.append(f"at {self.now - START:.2f}: {what}")

    def decided(self, program: Program, queue: str, decisions: Sequence[Decision]) -> None:
        """An autoscaler has decided."""
        if not self.witness.holds(program, f"{SYSTEM_NAMESPACE}/{lease_name(queue)}", program.clock()):
            self.broken(f"{program.name} decides for {queue} without the Lease for it")
        self.count("decided")
        for decision in decisions:
            if decision.resizes:
                self.happened[f"decided {decision.reason.value}"] += 1
                self.say(f"{program.name} decides: {decision.explanation}")

    def count(self, what: str) -> None:
        """Something was done, or went wrong."""
        self.happened[what] += 1

    def _live(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end and not self.problems:
            self.turns.sleep(min(1.0, end - self.now))

    def _pass(self, until: float) -> tuple[float, tuple[int, ...]]:
        """Let time pass to the next thing that happens outside of all programs."""
        if not self._events or self._events[0][0] > until:
            return until, ()
        at, _, act = heapq.heappop(self._events)
        self.turns.now = max(self.now, at)
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a fault of the harness ends the run, not the thread it met
            self._failed(error)
        return self.now, ()

    def _failed(self, error: BaseException) -> None:
        self.broken("".join(traceback.format_exception(error)))

    def _changed(self, transition: Transition) -> None:
        self.changes[transition.kind] += 1
        if transition.kind in self.news:
            self.news[transition.kind].notify_all()
        self.witness.look(transition)
        if _concerns_volcano(transition):
            self.kubelet.notice()


def _concerns_volcano(transition: Transition) -> bool:
    """Not Leases, nor what is noted on Jobs."""
    if transition.kind == "Lease":
        return False
    old, new = transition.old, transition.new
    if transition.kind != "Job" or old is None or new is None:
        return True
    return bool(old["spec"] != new["spec"] or old.get("status") != new.get("status"))
