# SPDX-License-Identifier: Apache-2.0
"""Measurements from outside, read in the background: what is asked for is read every few seconds, and grows old.

Whatever fails to be read keeps its last values until they are stale. Then they are missing, never zero: a policy that
is told 0 % of use would shrink what it cannot see.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kfp_volcano.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kfp_volcano.elastic.policies.snapshot import Sample

__all__ = [
    "CPU",
    "GPU_UTIL",
    "MEMORY",
    "NETWORK_RECEIVE",
    "NETWORK_TRANSMIT",
    "PERIOD_S",
    "STALE_S",
    "Measurements",
    "Reading",
    "Source",
]

GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
"""Mean utilisation of a pod's GPUs, percent."""
CPU = "cpu"
"""Cores in use."""
MEMORY = "memory"
"""Working set, bytes."""
NETWORK_RECEIVE = "network_receive"
"""Bytes per second."""
NETWORK_TRANSMIT = "network_transmit"
"""Bytes per second."""

PERIOD_S = 15.0
"""Between two readings, seconds: the period of Kubernetes' own autoscaler."""
STALE_S = 60.0
"""A measurement this old is none, seconds: four readings that failed."""
UNASKED_S = 300.0
"""What has not been asked for this long is read no more, seconds."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source has found."""

    pods: Mapping[str, Mapping[str, Sample]] = field(default_factory=dict)
    """By pod (namespace/name) and metric."""
    values: Mapping[str, float] = field(default_factory=dict)
    """By query."""
    troubles: tuple[str, ...] = ()
    """What could not be read, in words."""


class Source(Protocol):
    """Where measurements come from."""

    def read(self, namespaces: Collection[str], queries: Collection[str], now: float) -> Reading:
        """Measure the pods of some namespaces, and answer some queries.

        Raises UnavailableError where nothing can be read.
        """
        ...


class Measurements:
    """Implements `fleet.Metrics` over sources that are slow, or away. That something is asked for has it read.

    Args:
        sources: Where from; where two measure the same, the later one counts.
        queries: The named queries of a queue: by name, in PromQL; the value of one is the sum of what it finds.
        clock: Unix seconds.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        queries: Callable[[str], Mapping[str, str]] = lambda _: {},
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sources = sources
        self._queries_of = queries
        self._clock = clock
        self._lock = threading.Lock()
        self._namespaces: dict[str, float] = {}
        self._queries: dict[str, float] = {}
        self._pods: dict[str, dict[str, Sample]] = {}
        self._values: dict[str, tuple[float, float]] = {}
        self._said: tuple[str, ...] = ()
        self._asked = threading.Event()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Read from now on, in a thread of its own."""
        threading.Thread(target=self._run, name="measurements", daemon=True).start()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()
        self._asked.set()

    def of_queue(self, queue: str) -> Mapping[str, float]:
        """See `Metrics.of_queue`."""
        found = {name: self._value(query) for name, query in self._queries_of(queue).items()}
        return {name: value for name, value in found.items() if value is not None}

    def of_pod(self, namespace: str, name: str) -> Mapping[str, Sample]:
        """See `Metrics.of_pod`: by the names above."""
        now = self._clock()
        with self._lock:
            self._ask(self._namespaces, namespace, now)
            kept = self._pods.get(f"{namespace}/{name}", {})
            return {metric: sample for metric, sample in kept.items() if now - sample.at < STALE_S}

    def utilisation(self, namespace: str, pods: Sequence[str]) -> float | None:
        """See `Metrics.utilisation`."""
        measured = (self.of_pod(namespace, name).get(GPU_UTIL) for name in pods)
        values = [sample.value / 100 for sample in measured if sample is not None]
        return sum(values) / len(values) if values else None

    def read(self) -> None:
        """Read all that is asked for, once."""
        now = self._clock()
        with self._lock:
            for asked in (self._namespaces, self._queries):
                for old in [name for name, at in asked.items() if now - at > UNASKED_S]:
                    del asked[old]
            namespaces, queries = sorted(self._namespaces), sorted(self._queries)
        if not namespaces and not queries:
            return
        readings = [_read(source, namespaces, queries, now) for source in self._sources]
        for reading in readings:
            self._keep(reading, now)
        self._tell(tuple(trouble for reading in readings for trouble in reading.troubles))

    def _value(self, query: str) -> float | None:
        now = self._clock()
        with self._lock:
            self._ask(self._queries, query, now)
            at, value = self._values.get(query, (-STALE_S, 0.0))
            return value if now - at < STALE_S else None

    def _ask(self, asked: dict[str, float], name: str, now: float) -> None:
        if name not in asked:
            self._asked.set()
        asked[name] = now

    def _keep(self, reading: Reading, now: float) -> None:
        with self._lock:
            for pod, samples in reading.pods.items():
                self._pods.setdefault(pod, {}).update(samples)
            self._values |= {query: (now, value) for query, value in reading.values.items()}
            stale = [pod for pod, kept in self._pods.items() if all(now - each.at >= STALE_S for each in kept.values())]
            for pod in stale:
                del self._pods[pod]

    def _tell(self, troubles: tuple[str, ...]) -> None:
        if troubles and troubles != self._said:
            _log.warning("measurements are missing: %s", "; ".join(troubles))
        elif self._said and not troubles:
            _log.info("measurements are there again")
        self._said = troubles

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._asked.clear()
            try:
                self.read()
            except Exception:  # noqa: BLE001 - whatever a server answered, the next reading may go well
                _log.exception("measurements were not read")
            # What is asked for the first time is not made to wait; the pause spares a source that is asked for much.
            if self._asked.wait(PERIOD_S):
                self._stopped.wait(1.0)


def _read(source: Source, namespaces: Collection[str], queries: Collection[str], now: float) -> Reading:
    try:
        return source.read(namespaces, queries, now)
    except UnavailableError as error:
        return Reading(troubles=(str(error),))
