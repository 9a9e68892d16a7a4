# SPDX-License-Identifier: Apache-2.0
"""The embedded cluster's objects: a `World` with a lock, a clock, a bounded history, and watches upon it."""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from kfp_volcano.errors import ConflictError, InvalidError
from kfp_volcano.volcano.cluster.base import KINDS, Event, Kind, Manifest, Patch
from kfp_volcano.volcano.cluster.json_patch import apply_patch
from kfp_volcano.volcano.cluster.ssh_keys import ssh_keys
from kfp_volcano.volcano.model.objects import Key, Transition, key_of, labels_of
from kfp_volcano.volcano.model.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kfp_volcano.volcano.cluster.polling import Events

__all__ = ["Store"]


class Store:
    """Objects that many threads read, change and watch.

    Objects inside are shared and never changed in place; what goes in or out by the methods of the Cluster port is
    copied. `changed` is notified after every change; `transaction` gives the world to one thread.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, history: int = 20_000) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._clock = clock
        self._listeners: list[Callable[[Transition], None]] = []
        self._world = World(lambda: str(uuid.uuid4()), self._happened, new_keys=ssh_keys)
        self._history: deque[tuple[int, Event]] = deque(maxlen=history)
        self._forgotten = 0

    def listen(self, listener: Callable[[Transition], None]) -> None:
        """Call a function on every change, within the transaction that makes it: it must not block."""
        self._listeners.append(listener)

    @contextmanager
    def transaction(self) -> Iterator[tuple[World, float]]:
        """The world and the time, for this thread alone; watches hear of the changes when it is done."""
        with self.changed:
            before = self._world.version
            try:
                yield self._world, self._clock()
            finally:
                if self._world.version != before:
                    self.changed.notify_all()

    @property
    def version(self) -> int:
        """The resource version of the last change."""
        with self.changed:
            return self._world.version

    def create(self, manifest: Manifest) -> Manifest:
        """Admit and store an object."""
        placed = copy.deepcopy(manifest)
        name = str(placed.get("kind"))
        metadata = placed.setdefault("metadata", {})
        if not metadata.get("name"):
            raise InvalidError(f"{name}: metadata.name is required")
        if _kind(name).namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
        else:
            metadata.pop("namespace", None)
        with self.transaction() as (world, now):
            return copy.deepcopy(world.create(placed, now))

    def get(self, kind: str, name: str, namespace: str = "") -> Manifest:
        """Read an object."""
        with self.changed:
            return copy.deepcopy(self._world.get(kind, _key(kind, name, namespace)))

    def list(
        self,
        kind: str,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[list[Manifest], str]:
        """Read all objects of a kind, and the version of that read."""
        _kind(kind)
        with self.changed:
            found = list(self._world.objects.get(kind, {}).values())
            version = str(self._world.version)
        wanted = (labels or {}).items()
        chosen = [
            each
            for each in found
            if _within(kind, each, namespace) and wanted <= labels_of(each).items() and _is_so(each, fields or {})
        ]
        return copy.deepcopy(chosen), version

    def patch(self, kind: str, name: str, namespace: str, patch: Patch) -> Manifest:
        """Apply a JSON Patch to an object, whole or not at all."""
        key = _key(kind, name, namespace)
        with self.transaction() as (world, _):
            old = world.get(kind, key)
            new = apply_patch(old, patch)
            if new.get("kind") != kind or key_of(new) != key:
                raise InvalidError(f"{kind} {name}: a patch may not change what an object is called")
            return copy.deepcopy(world.update(new))

    def delete(self, kind: str, name: str, namespace: str = "", *, grace_s: float | None = None, uid: str = "") -> None:
        """Ask for an object's deletion, with `uid` only for that very one's."""
        key = _key(kind, name, namespace)
        with self.transaction() as (world, now):
            if uid and world.get(kind, key)["metadata"]["uid"] != uid:
                raise ConflictError(f"{kind} {'/'.join(filter(None, key))} is another one by now")
            world.delete(kind, key, now, grace_s)

    def revise(self, kind: str, key: Key, uid: str, revision: Callable[[Manifest], Manifest]) -> Manifest | None:
        """Put an object in the form that `revision` gives it; None where that very object is gone."""
        with self.transaction() as (world, _):
            current = world.objects.get(kind, {}).get(key)
            if current is None or current["metadata"]["uid"] != uid:
                return None
            return world.update(revision(current))

    def poll(self, kind: str, namespace: str, *, resource_version: str, timeout_s: float) -> tuple[Events, str]:
        """The next changes after a version, waited for if there are none yet, and where to go on from.

        Raises ConflictError when the version is too old.
        """
        deadline, since = time.monotonic() + timeout_s, int(resource_version)
        with self.changed:
            while True:
                events, since = self._after(kind, namespace, since)
                left = deadline - time.monotonic()
                if events or left <= 0:
                    return copy.deepcopy(events), str(since)
                self.changed.wait(left)

    def _after(self, kind: str, namespace: str, since: int) -> tuple[Events, int]:
        """The events of a kind after a version, and the version up to which that is the whole truth."""
        _kind(kind)
        if since < self._forgotten:
            raise ConflictError(f"too old resource version: {since} ({self._forgotten})")
        found = []
        for version, event in reversed(self._history):
            if version <= since:
                break
            if event.object["kind"] == kind and _within(kind, event.object, namespace):
                found.append(event)
        return found[::-1], self._world.version

    def _happened(self, transition: Transition) -> None:
        manifest = transition.new or transition.old
        if manifest is None:
            return
        change: Literal["ADDED", "MODIFIED", "DELETED"] = (
            "ADDED" if transition.old is None else "DELETED" if transition.new is None else "MODIFIED"
        )
        if len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0][0]
        self._history.append((self._world.version, Event(change, manifest)))
        for listener in self._listeners:
            listener(transition)


def _kind(name: str) -> Kind:
    try:
        return KINDS[name]
    except KeyError:
        raise InvalidError(f"there is no kind {name!r} here; there are {', '.join(KINDS)}") from None


def _key(kind: str, name: str, namespace: str) -> Key:
    return (namespace or "default" if _kind(kind).namespaced else ""), name


def _within(kind: str, manifest: Manifest, namespace: str) -> bool:
    return not namespace or not KINDS[kind].namespaced or manifest["metadata"].get("namespace") == namespace


def _is_so(manifest: Manifest, fields: Mapping[str, str]) -> bool:
    """Whether fields, by their paths, have these values; one that is not there is empty, as for Kubernetes."""
    for path, value in fields.items():
        found: Any = manifest
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if str(found or "") != value:
            return False
    return True
