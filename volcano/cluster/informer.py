# SPDX-License-Identifier: Apache-2.0
"""A local copy of some kinds of objects that follows the cluster.

What readers see is whole and in the order of the cluster's changes for each kind; how far it may lag behind,
`stale_since` says.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from kfp_volcano.volcano.cluster.reflector import Reflector
from kfp_volcano.volcano.model.objects import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from kfp_volcano.volcano.cluster.base import Cluster, Event, Manifest
    from kfp_volcano.volcano.model.objects import Key

__all__ = ["Informer"]


class Informer:
    """Keeps the objects of some kinds.

    Objects are shared with all readers: read them, do not change them. `start`, `stop`, `wait`, `wake` and
    `stale_since` are those of `Reflector`.

    Args:
        cluster: Where to look.
        kinds: Which kinds to follow.
        namespace: Only there; everywhere where empty.
        jitter: From [0, 1): spreads the pauses between attempts while the cluster gives no answer.
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
        kinds = tuple(kinds)
        self._copy = _Copy(kinds)
        self._reflector = Reflector(cluster, kinds, self._copy, namespace=namespace, jitter=jitter, clock=clock)
        self.start = self._reflector.start
        self.stop = self._reflector.stop
        self.wait = self._reflector.wait
        self.wake = self._reflector.wake

    def objects(self, kind: str) -> list[Manifest]:
        """All objects of a kind as last seen, oldest first."""
        with self._reflector.still():
            return list(self._copy.objects[kind].values())

    @property
    def stale_since(self) -> float | None:
        """Since when some kind cannot be followed (Unix seconds); None while all can."""
        return self._reflector.stale_since


class _Copy:
    """A sink that keeps everything; a list counts when all of it is there."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.objects: dict[str, dict[Key, Manifest]] = {kind: {} for kind in kinds}
        self._pages: dict[str, dict[Key, Manifest]] = {kind: {} for kind in self.objects}

    def page(self, kind: str, objects: Sequence[Manifest]) -> None:
        self._pages[kind].update((key_of(each), each) for each in objects)

    def listed(self, kind: str, keys: AbstractSet[Key], version: str) -> None:  # noqa: ARG002 - the port's
        pages, self._pages[kind] = self._pages[kind], {}
        self.objects[kind] = {key: each for key, each in pages.items() if key in keys}

    def apply(self, kind: str, event: Event) -> None:
        if event.type == "DELETED":
            self.objects[kind].pop(key_of(event.object), None)
        elif event.type != "BOOKMARK":
            self.objects[kind][key_of(event.object)] = event.object
