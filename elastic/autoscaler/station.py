# SPDX-License-Identifier: Apache-2.0
"""What runs in one process of the autoscaler: a fleet of queues with its recorders, made anew whenever it fails.

It knows nothing of Ray: an actor is a station and a name.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from kfp_volcano.elastic.autoscaler.decisions.decision_log import DecisionLog
from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.elastic.autoscaler.measuring.dcgm import DcgmExporters
from kfp_volcano.elastic.autoscaler.measuring.measurements import Measurements
from kfp_volcano.elastic.autoscaler.measuring.prometheus import Prometheus
from kfp_volcano.elastic.autoscaler.policy_file import PolicyFile
from kfp_volcano.elastic.autoscaler.telling.events import Events
from kfp_volcano.elastic.autoscaler.telling.narration import Narrator
from kfp_volcano.elastic.autoscaler.telling.queue_log import QueueLog
from kfp_volcano.elastic.autoscaler.telling.telemetry import Telemetry
from kfp_volcano.elastic.autoscaler.tending import Tender
from kfp_volcano.errors import KfpVolcanoError
from kfp_volcano.volcano.cluster.connect import connect, kubernetes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client import Metric

    from kfp_volcano.elastic.autoscaler.measuring.measurements import Source
    from kfp_volcano.elastic.autoscaler.observing.index import ClusterIndex
    from kfp_volcano.elastic.autoscaler.telling.recorder import Recorder
    from kfp_volcano.elastic.policies.guards import Guarded
    from kfp_volcano.schemas.policy import QueuePolicy
    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["Access", "Measuring", "Orders", "State", "Station"]

RETRY_S = 2.0
"""Before the next try after a failure, seconds."""
READY_S = 60.0
"""One that has not gone round for as long is not ready, seconds: it does so every 15 s."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Which cluster, for a process that may not have the environment of the one that was told."""

    target: str = ""
    """In the terms of `connect`."""
    kubeconfig: Path | None = None
    context: str | None = None

    def connect(self) -> Cluster:
        """A connection; raises as `connect` does."""
        if self.kubeconfig is None and self.context is None:
            return connect(self.target)
        return kubernetes(self.kubeconfig, self.context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Where measurements come from; nowhere by default."""

    prometheus: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    exporters: tuple[str, ...] = ()
    """Addresses of DCGM exporters."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """PromQL of external metrics by name; one that is not here is a query itself."""

    def sources(self) -> list[Source]:
        """The servers to ask."""
        found: list[Source] = [DcgmExporters(url) for url in self.exporters]
        if self.prometheus:
            found.append(Prometheus(self.prometheus, token_file=self.token_file, ca_file=self.ca_file))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a station is to do; the same for a process that takes the place of one that died."""

    access: Access
    identity: str
    """Who it is, in Leases and records; unique among all that could lead."""
    namespace: str = ""
    """Whose Jobs are resized; empty: everybody's."""
    home: str | None = None
    """Where its Leases are; by default `namespace`."""
    policies: Path | None = None
    policies_optional: bool = False
    """Whether they may be wrong, or not there: then the default decides until they are right."""
    measuring: Measuring = field(default_factory=Measuring)
    decisions: Path | None = None
    """Folder for its decision log."""
    timeline: Path | None = None
    """Folder for the timeline of its queues."""
    shared_namespace: str | None = None
    only_for: str | None = None
    queues: frozenset[str] = frozenset()
    """To begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How a station is."""

    pid: int
    led: frozenset[str] = frozenset()
    """The queues that it leads; it stands by for the others."""
    ready: bool = False
    """Whether it sees the cluster and goes round."""
    trouble: str = ""
    """What keeps it from that."""
    memory_bytes: int = 0
    """What its process holds in memory that is its own."""


class Station:
    """Runs a fleet from `start` to `stop`, or until the Job that it is for has ended."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._queues = orders.queues
        self._policies: PolicyFile | None = None
        self._looking = threading.Lock()
        self._fleet: Fleet | None = None
        self._led: frozenset[str] = frozenset()
        self._trouble = "starting"
        self._stopped = threading.Event()
        self._registry = CollectorRegistry()
        self._telemetry = Telemetry(self._registry)
        self._thread = threading.Thread(target=self._run, name="station", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Give the Leases back and end; whether that was done in time."""
        self._stopped.set()
        if self._fleet is not None:
            self._fleet.stop()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join()

    def tend(self, queues: frozenset[str]) -> State:
        """Lead these queues from now on, and tell how it is."""
        gone, changed = self._queues - queues, queues != self._queues
        self._queues = queues
        fleet = self._fleet
        if fleet is not None and (changed or self._new_policies()):
            fleet.wake()
        for queue in gone:
            self._telemetry.forget(queue)
        state = self._state(fleet)
        self._tell(state.led)
        return state

    def families(self) -> list[Metric]:
        """What it has counted."""
        led = frozenset() if self._fleet is None else self._fleet.led
        for queue in self._queues:
            self._telemetry.leads(queue, leading=queue in led)
        return list(self._registry.collect())

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._once()
            except KfpVolcanoError as error:
                self._fail(error, f"the autoscaler cannot work: {error}")
            except Exception as error:  # noqa: BLE001 - whatever it was, the queues must not be left alone
                _log.exception("the autoscaler failed and starts again")
                self._fail(error, "")
            else:
                return
            self._stopped.wait(RETRY_S)

    def _once(self) -> None:
        orders = self._orders
        if self._policies is None:
            self._policies = PolicyFile(
                orders.policies, optional=orders.policies_optional, told=self._telemetry.policies
            )
        cluster = orders.access.connect()
        events = Events(cluster, identity=orders.identity)
        recorders: list[Recorder] = [self._telemetry, Narrator(), events]
        decisions = (
            DecisionLog(orders.decisions, policies=self._spec_in_use, by=orders.identity) if orders.decisions else None
        )
        recorders += [decisions] if decisions else []
        sources = orders.measuring.sources()
        measurements = Measurements(sources, queries=self._named_queries)
        self._fleet = Fleet(
            cluster,
            queues=self._of,
            policies=self._policy_of,
            identity=orders.identity,
            namespace=orders.namespace,
            home=orders.home,
            recorders=recorders,
            metrics=measurements if sources else None,  # nobody looks at single pods for nothing
            tender=Tender(cluster, self._spec_of, identity=orders.identity, namespace=orders.namespace),
            log=QueueLog(orders.timeline) if orders.timeline else None,
            shared_namespace=orders.shared_namespace,
            only_for=orders.only_for,
        )
        try:
            measurements.start()
            if not self._stopped.is_set():
                self._fleet.run()
        finally:
            self._fleet = None
            measurements.stop()
            events.close()
            if decisions:
                decisions.close()

    def _tell(self, led: frozenset[str]) -> None:
        for queue in sorted(led - self._led):
            _log.info("leads queue %s", queue, extra={"queue": queue})
        for queue in sorted(self._led - led):
            _log.info("does not lead queue %s any more", queue, extra={"queue": queue})
        self._led = led

    def _fail(self, error: Exception, message: str) -> None:
        trouble = str(error) or repr(error)
        if message and trouble != self._trouble:
            _log.warning(message)
        self._trouble = trouble

    def _of(self, index: ClusterIndex) -> Iterable[str]:
        return self._queues & index.queues.keys()

    def _policy_of(self, queue: str) -> Guarded:
        self._new_policies()
        with self._looking:
            assert self._policies is not None  # noqa: S101 - `_once` reads them first
            return self._policies.policy_of(queue)

    def _spec_of(self, queue: str) -> QueuePolicy:
        with self._looking:
            assert self._policies is not None  # noqa: S101 - `_once` reads them first
            return self._policies.spec_of(queue)

    def _spec_in_use(self, queue: str) -> QueuePolicy:
        with self._looking:
            assert self._policies is not None  # noqa: S101 - `_once` reads them first
            return self._policies.spec_in_use(queue)

    def _new_policies(self) -> bool:
        with self._looking:
            return self._policies is not None and self._policies.refresh()

    def _named_queries(self, queue: str) -> Mapping[str, str]:
        """PromQL of the external metrics that the queue's Policy names."""
        named = self._orders.measuring.queries
        return {name: named.get(name, name) for name in _external(self._spec_of(queue).document)}

    def _state(self, fleet: Fleet | None) -> State:
        pid, memory = os.getpid(), _own_memory()
        if fleet is None:
            return State(pid=pid, trouble=self._trouble, memory_bytes=memory)
        if not fleet.turned_at:
            return State(pid=pid, trouble="the cluster is being read", memory_bytes=memory)
        now, trouble = time.time(), ""
        if fleet.stale_since is not None:
            trouble = f"the cluster has not been seen for {now - fleet.stale_since:.0f} s"
        elif now - fleet.turned_at > READY_S:
            trouble = f"nothing has been looked at for {now - fleet.turned_at:.0f} s"
        return State(pid=pid, led=fleet.led, ready=not trouble, trouble=trouble, memory_bytes=memory)


def _external(document: object) -> set[str]:
    """Names of the external metrics anywhere in a Policy: they are written as in an HPA's manifest."""
    if isinstance(document, dict):
        name = ((document.get("external") or {}).get("metric") or {}).get("name") if _is_external(document) else None
        return {str(name)} if name else set().union(*map(_external, document.values()))
    if isinstance(document, list):
        return set().union(*map(_external, document))
    return set()


def _is_external(document: dict[str, object]) -> bool:
    return document.get("type") == "External" and isinstance(document.get("external"), dict)


def _own_memory() -> int:
    """Resident memory less what is shared with others, bytes; see proc_pid_statm(5)."""
    resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
