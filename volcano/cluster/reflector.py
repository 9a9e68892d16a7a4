# SPDX-License-Identifier: Apache-2.0
"""Follows kinds of objects and tells a sink what they are: list once, then watch; each kind by a thread of its own.

How far what was told may lag behind the cluster, `stale_since` says.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kfp_volcano.errors import ClusterError, ConflictError
from kfp_volcano.volcano.model.objects import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from kfp_volcano.volcano.cluster.base import Cluster, Event, Manifest
    from kfp_volcano.volcano.model.objects import Key

__all__ = ["Reflector", "Sink"]

_WATCH_S = 30.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class Sink(Protocol):
    """What is told of the cluster; never by two threads at once.

    Objects are shared: to be read, not to be changed.
    """

    def page(self, kind: str, objects: Sequence[Manifest]) -> None:
        """A part of all that there is of a kind."""
        ...

    def listed(self, kind: str, keys: AbstractSet[Key], version: str) -> None:
        """All pages of a kind have been told: at this resource version there was what has these keys, and no more."""
        ...

    def apply(self, kind: str, event: Event) -> None:
        """A change, or a BOOKMARK."""
        ...


class Reflector:
    """Tells a sink of kinds of objects.

    Args:
        cluster: Where to look.
        kinds: Which kinds to follow.
        sink: What is told.
        namespace: Only there; everywhere where empty.
        jitter: From [0, 1): spreads the pauses between attempts while the cluster gives no answer.
        clock: Unix seconds, for `stale_since`.
    """

    def __init__(
        self,
        cluster: Cluster,
        kinds: Iterable[str],
        sink: Sink,
        *,
        namespace: str = "",
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._sink = sink
        self._namespace = namespace
        self._jitter = jitter
        self._clock = clock
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._version = 0
        self._seen: dict[str, str] = {}
        self._stale: dict[str, float] = {}
        self._failure: ClusterError | None = None
        self._kinds = tuple(kinds)
        self._reading = set(self._kinds)
        self._threads = [
            threading.Thread(target=self._follow, args=(kind,), name=f"reflector-{kind}", daemon=True)
            for kind in self._kinds
        ]

    def start(self) -> None:
        """Begin, and return when every kind has been read once.

        Raises the first refusal that no retry can help (a missing permission, an unknown kind).
        """
        for thread in self._threads:
            thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._failure or not self._reading or self._stopped.is_set())
            if self._failure is not None:
                raise self._failure

    def stop(self) -> None:
        """End; the threads follow when their watch returns, in 30 s at the latest."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def still(self) -> Iterator[bool]:
        """Nothing is told meanwhile. The value: whether the sink has been told all, and is not within a list."""
        with self._changed:
            yield not self._reading

    def wait(self, version: int, timeout_s: float) -> int:
        """Return the present version as soon as it is not `version` any more, or when the time is up.

        A version counts what was told; begin with 0.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or self._stopped.is_set(), timeout_s)
            return self._version

    def wake(self) -> None:
        """Let `wait` return now, for a reason outside of the cluster."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    @property
    def stale_since(self) -> float | None:
        """Since when some kind cannot be followed (Unix seconds); None while all can."""
        with self._changed:
            return min(self._stale.values(), default=None)

    def _follow(self, kind: str) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stopped.is_set():
            failure = self._attempt(kind)
            if failure is None:
                pause_s = _FIRST_PAUSE_S
            elif failure.retryable:
                self._mark_stale(kind)
                self._stopped.wait(pause_s * (1 + self._jitter()))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                self._fail(kind, failure)
                return

    def _attempt(self, kind: str) -> ClusterError | None:
        """One list, where there is nothing to go on from, and one watch; returns what failed."""
        try:
            resource_version = self._seen.get(kind) or self._read(kind)
            self._watch(kind, resource_version)
        except ConflictError:
            self._seen.pop(kind, None)
        except ClusterError as error:
            return error
        return None

    def _read(self, kind: str) -> str:
        keys: set[Key] = set()
        resource_version = ""
        with self._changed:
            self._reading.add(kind)
        for objects, version in self._cluster.pages(kind, self._namespace):
            resource_version = version
            keys.update(map(key_of, objects))
            with self._changed:
                self._sink.page(kind, objects)
        self._seen[kind] = resource_version
        with self._changed:
            self._sink.listed(kind, keys, resource_version)
            self._reading.discard(kind)
            self._answered(kind)
        return resource_version

    def _watch(self, kind: str, resource_version: str) -> None:
        events = self._cluster.watch(kind, self._namespace, resource_version=resource_version, timeout_s=_WATCH_S)
        for event in events:
            self._seen[kind] = event.resource_version
            with self._changed:
                self._sink.apply(kind, event)
                if event.type != "BOOKMARK" or kind in self._stale:
                    self._answered(kind)
            if self._stopped.is_set():
                return

    def _answered(self, kind: str) -> None:
        self._stale.pop(kind, None)
        self._version += 1
        self._changed.notify_all()

    def _mark_stale(self, kind: str) -> None:
        with self._changed:
            self._stale.setdefault(kind, self._clock())
            self._version += 1
            self._changed.notify_all()

    def _fail(self, kind: str, error: ClusterError) -> None:
        self._mark_stale(kind)
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()
