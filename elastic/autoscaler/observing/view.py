# SPDX-License-Identifier: Apache-2.0
"""An index that follows a cluster, between the threads that tell it and the one that asks."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kfp_volcano.elastic.autoscaler.observing.index import WATCHED, ClusterIndex
from kfp_volcano.volcano.cluster.reflector import Reflector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    from kfp_volcano.volcano.cluster.base import Cluster, Event, Manifest
    from kfp_volcano.volcano.model.objects import Key

__all__ = ["ClusterView", "Stamped", "View"]


class View(Protocol):
    """An index, and when to look at it."""

    def start(self) -> None:
        """Begin to follow; returns when the index is whole. Raises a ClusterError where it never will be."""
        ...

    def stop(self) -> None:
        """Follow no more; whoever waits goes on."""
        ...

    def wait(self, version: int, timeout_s: float) -> int:
        """Return the present version when it is another than `version`, or the time is up."""
        ...

    def wake(self) -> None:
        """Let whoever waits go on."""
        ...

    @property
    def stale_since(self) -> float | None:
        """Since when it cannot be followed, Unix seconds; None while it can."""
        ...

    def reading(self) -> AbstractContextManager[Stamped | None]:
        """The index, for this thread alone; None while a list is being read and it is not whole."""
        ...


class Stamped:
    """An index that knows when it was told what nobody has looked at yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.index = ClusterIndex()
        self._clock = clock
        self.since: float | None = None
        """When the oldest change came that was not looked at, Unix seconds; whoever looks sets it to None."""

    def page(self, kind: str, objects: Sequence[Manifest]) -> None:
        """See `Sink.page`."""
        self.index.page(kind, objects)
        self._stamp()

    def listed(self, kind: str, keys: AbstractSet[Key], version: str) -> None:
        """See `Sink.listed`."""
        self.index.listed(kind, keys, version)
        self._stamp()

    def apply(self, kind: str, event: Event) -> None:
        """See `Sink.apply`."""
        self.index.apply(kind, event)
        self._stamp()

    def _stamp(self) -> None:
        if self.since is None:
            self.since = self._clock()


class ClusterView:
    """Follows a cluster by watching it. `start`, `stop`, `wait` and `wake` are those of `Reflector`.

    Args:
        cluster: Which one; objects of all namespaces are watched.
        clock: Unix seconds.
    """

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float] = time.time) -> None:
        self._stamped = Stamped(clock)
        self._reflector = Reflector(cluster, WATCHED, self._stamped, clock=clock)
        self.start = self._reflector.start
        self.stop = self._reflector.stop
        self.wait = self._reflector.wait
        self.wake = self._reflector.wake

    @property
    def stale_since(self) -> float | None:
        """Since when some kind cannot be followed, Unix seconds; None while all can."""
        return self._reflector.stale_since

    @contextmanager
    def reading(self) -> Iterator[Stamped | None]:
        """The index, for this thread alone; None while a list is being read and it is not whole."""
        with self._reflector.still() as whole:
            yield self._stamped if whole else None
