"""A local copy of some kinds of objects that follows the cluster: list once, then watch.

What readers see is whole and in the order of the cluster's changes for each kind; how far it may lag behind,
`stale_since` says.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

from kfp_volcano.errors import ClusterError, ConflictError
from kfp_volcano.volcano.model.objects import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kfp_volcano.volcano.cluster.base import Cluster, Event, Manifest
    from kfp_volcano.volcano.model.objects import Key

__all__ = ["Informer"]

_WATCH_S = 30.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class Informer:
    """Follows kinds of objects, each by a thread of its own.

    Objects are shared with all readers: read them, do not change them.

    Args:
        cluster: where to look.
        kinds: which kinds to follow.
        namespace: only there; everywhere where empty.
        jitter: from [0, 1): spreads the pauses between attempts while the cluster gives no answer.
        clock: Unix seconds, for `stale_since`.
    """

    def __init__(
        self,
        cluster: Cluster,
        kinds: Iterable[str],
        *,
        namespace: str = "",
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._jitter = jitter
        self._clock = clock
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._version = 0
        self._objects: dict[str, dict[Key, Manifest] | None] = dict.fromkeys(kinds)
        self._seen: dict[str, str] = {}
        self._stale: dict[str, float] = {}
        self._failure: ClusterError | None = None
        self._threads = [
            threading.Thread(target=self._follow, args=(kind,), name=f"informer-{kind}", daemon=True)
            for kind in self._objects
        ]

    def start(self) -> None:
        """Begin, and return when every kind has been read once.

        Raises the first refusal that no retry can help (a missing permission, an unknown kind).
        """
        for thread in self._threads:
            thread.start()
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or None not in self._objects.values() or self._stopped.is_set()
            )
            if self._failure is not None:
                raise self._failure

    def stop(self) -> None:
        """End; the threads follow when their watch returns, in 30 s at the latest."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def objects(self, kind: str) -> list[Manifest]:
        """All objects of a kind as last seen, oldest first."""
        with self._changed:
            return list((self._objects[kind] or {}).values())

    def wait(self, version: int, timeout_s: float) -> int:
        """Return the present version as soon as it is not `version` any more, or when the time is up.

        A version counts changes of this copy; begin with 0.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or self._stopped.is_set(), timeout_s)
            return self._version

    def wake(self) -> None:
        """Let `wait` return now, for a reason outside of this copy."""
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
        found, resource_version = self._cluster.list(kind, self._namespace)
        self._seen[kind] = resource_version
        with self._changed:
            self._objects[kind] = {key_of(each): each for each in found}
            self._answered(kind)
        return resource_version

    def _watch(self, kind: str, resource_version: str) -> None:
        events = self._cluster.watch(kind, self._namespace, resource_version=resource_version, timeout_s=_WATCH_S)
        for event in events:
            self._seen[kind] = event.resource_version
            with self._changed:
                self._take(kind, event)
            if self._stopped.is_set():
                return

    def _take(self, kind: str, event: Event) -> None:
        kept = self._objects[kind]
        if kept is not None and event.type == "DELETED":
            kept.pop(key_of(event.object), None)
        elif kept is not None and event.type != "BOOKMARK":
            kept[key_of(event.object)] = event.object
        if event.type != "BOOKMARK" or kind in self._stale:
            self._answered(kind)

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
