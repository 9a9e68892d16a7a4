# SPDX-License-Identifier: Apache-2.0
"""The supervisor of an autoscaler: says which actor leads which queues, and how all of them are.

It keeps nothing that matters: actors are told again and again what is theirs, so that one that was killed and started
again by Ray knows within seconds, and everything they do comes from the cluster.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from kfp_volcano.elastic.autoscaler.assignment import assigned
from kfp_volcano.elastic.autoscaler.telling.exposition import ACTOR, Watched
from kfp_volcano.elastic.autoscaler.telling.telemetry import PREFIX
from kfp_volcano.errors import UnavailableError
from kfp_volcano.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import Metric

    from kfp_volcano.elastic.autoscaler.assignment import Assignment
    from kfp_volcano.elastic.autoscaler.station import State

__all__ = ["Crew", "RayDiedError", "Supervisor"]

TEND_S = 2.0
"""Between two rounds, seconds."""
SILENT_S = 90.0
"""When an actor has not answered for as long, the whole process is to be started again, seconds: a new one takes up to
a minute to start on a busy node."""

_log = logging.getLogger(__name__)


class RayDiedError(UnavailableError):
    """Ray, in which the actors live, has died; they end with it."""


class Crew(Protocol):
    """The actors, by number; made when they are first called."""

    def tend(self, assignment: Mapping[int, frozenset[str]]) -> Mapping[int, State]:
        """Tell each what it leads; the states of those that answer in time."""
        ...

    def died(self) -> str:
        """What of Ray itself has died, so that nothing can be asked of them any more; empty while it lives."""
        ...

    def families(self) -> Mapping[int, Iterable[Metric]]:
        """What each has counted; of those that answer in time."""
        ...

    def stop(self) -> None:
        """Have all of them give their Leases back, and end."""
        ...


class Supervisor:
    """Goes round among the actors. Implements `exposition.Health`.

    Args:
        crew: The actors.
        queues: Which queues are to be led, as known now.
        actors: The most there are to be.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        crew: Crew,
        *,
        queues: Callable[[], Iterable[str]],
        actors: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._crew = crew
        self._queues = queues
        self._most = actors
        self._clock = clock
        self._assignment: Assignment = {}
        self._states: Mapping[int, State] = {}
        self._pids: dict[int, int] = {}
        self._restarts: dict[int, int] = {}
        self._said: dict[int, str] = {}
        self._went_round = False
        self._heard_at = clock()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Go round until stopped; then every Lease has been given back.

        Raises RayDiedError where Ray is seen to have died, and UnavailableError where it is not well any more, for
        whatever reason: this process is of no use then, and has to begin anew.
        """
        try:
            while not self._stopped.is_set():
                if what := self._crew.died():
                    raise RayDiedError(f"Ray's {what} has died")
                self.round()
                if why := self.unwell():
                    _log.error("%s: ending", why)  # at once: leaving a Ray that has died may end this process, too
                    raise UnavailableError(f"{why}: this process has to be started again")
                self._stopped.wait(TEND_S)
        finally:
            if not self._crew.died():
                self._crew.stop()

    def stop(self) -> None:
        """End `run` soon; to be called from a signal handler."""
        self._stopped.set()

    def round(self) -> None:
        """Tell all actors once what is theirs, and hear how they are."""
        self._assignment = assigned(tuple(self._queues()), self._assignment, self._most)
        states = self._crew.tend(self._assignment)
        for actor, state in states.items():
            self._note(actor, state)
        self._states = states
        self._went_round = True
        if len(states) == len(self._assignment):
            self._heard_at = self._clock()

    def unwell(self) -> str:
        """See `Health.unwell`."""
        silent_s = self._clock() - self._heard_at
        return f"an actor has not answered for {silent_s:.0f} s" if silent_s > SILENT_S else ""

    def unready(self) -> str:
        """See `Health.unready`."""
        if not self._went_round:
            return "starting"
        silent = [f"actor {actor} does not answer" for actor in self._assignment if actor not in self._states]
        return "; ".join(silent + [f"actor {actor}: {each.trouble}" for actor, each in self._troubled()])

    def registry(self) -> CollectorRegistry:
        """All metrics: the actors', and about them and this process."""
        registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        registry.register(Watched(lambda: {str(actor): each for actor, each in self._crew.families().items()}))
        registry.register(_About(self))
        return registry

    def about(self) -> Iterable[Metric]:
        """Metrics of the actors as the supervisor sees them."""
        up = GaugeMetricFamily(f"{PREFIX}_actor_up", "1 while the actor answers.", labels=[ACTOR])
        ready = GaugeMetricFamily(
            f"{PREFIX}_actor_ready", "1 while it sees the cluster and goes round.", labels=[ACTOR]
        )
        memory = GaugeMetricFamily(f"{PREFIX}_actor_memory_bytes", "Memory of its own process alone.", labels=[ACTOR])
        restarts = CounterMetricFamily(f"{PREFIX}_actor_restarts", "Times it came back.", labels=[ACTOR])
        states = self._states
        for actor in self._assignment:
            name, state = [str(actor)], states.get(actor)
            up.add_metric(name, float(state is not None))
            ready.add_metric(name, float(state is not None and state.ready))
            restarts.add_metric(name, self._restarts.get(actor, 0))
            if state is not None:
                memory.add_metric(name, state.memory_bytes)
        info = GaugeMetricFamily(f"{PREFIX}_info", "The version that runs.", labels=["version"])
        info.add_metric([__version__], 1.0)
        return up, ready, memory, restarts, info

    def _note(self, actor: int, state: State) -> None:
        before = self._pids.get(actor)
        self._pids[actor] = state.pid
        if before not in {None, state.pid}:
            self._restarts[actor] = self._restarts.get(actor, 0) + 1
            _log.warning("actor %d came back as process %d", actor, state.pid, extra={"actor": actor})
        if state.ready and not self._said.get(actor):
            _log.info("actor %d is at work, process %d", actor, state.pid, extra={"actor": actor})
        self._said[actor] = "" if not state.ready else "ready"

    def _troubled(self) -> Iterable[tuple[int, State]]:
        return ((actor, state) for actor, state in sorted(self._states.items()) if not state.ready)


class _About:
    """A collector of what the supervisor knows of its actors."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def describe(self) -> Iterable[Metric]:
        return self._supervisor.about()

    def collect(self) -> Iterable[Metric]:
        return self._supervisor.about()
