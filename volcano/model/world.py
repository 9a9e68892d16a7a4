# SPDX-License-Identifier: Apache-2.0
"""A set of objects with an API server's manners: versions, owners, deletion; time and uids are passed in.

The rules are those of the API server and its garbage collector; nothing here knows Volcano but through
`admission`. One writer at a time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError, NotFoundError
from kfp_volcano.volcano.model import admission, ssh
from kfp_volcano.volcano.model.delays import Delays
from kfp_volcano.volcano.model.objects import (
    Change,
    Create,
    CreateKeys,
    Delete,
    Key,
    Manifest,
    Objects,
    Shelf,
    Transition,
    Update,
    has_ended,
    key_of,
    resource_of,
    terminating,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["World"]

_WITHOUT_GENERATION = frozenset({"metadata", "status"})
_DEFAULT_GRACE_S = 30


class World:
    """The objects of one cluster.

    `transitions` collects what happened, oldest first, until whoever runs the controllers takes it out, and `delays`
    what these are to do later; `listener` hears of each transition at once. `new_keys` makes SSH keys, private and
    public; without it they are empty, for worlds whose pods never run.
    """

    def __init__(
        self,
        new_uid: Callable[[], str],
        listener: Callable[[Transition], None] | None = None,
        *,
        new_keys: Callable[[], tuple[str, str]] = lambda: ("", ""),
    ) -> None:
        self._shelves: dict[str, Shelf] = {}
        self.transitions: deque[Transition] = deque()
        self.delays = Delays()
        self.version = 0
        self._new_uid = new_uid
        self._new_keys = new_keys
        self._listener = listener

    @property
    def objects(self) -> Objects:
        """All objects, to read."""
        return self._shelves

    def get(self, kind: str, key: Key) -> Manifest:
        """An object. Raises NotFoundError."""
        try:
            return self.objects[kind][key]
        except KeyError:
            raise NotFoundError(f'{resource_of(kind)} "{key[1]}" not found') from None

    def create(self, manifest: Manifest, now: float) -> Manifest:
        """Admit and add an object. Raises InvalidError or ConflictError."""
        admitted = admission.admit_create(manifest, self.objects)
        kind, key = admitted["kind"], key_of(admitted)
        if key in self.objects.get(kind, {}):
            raise ConflictError(f'{resource_of(kind)} "{key[1]}" already exists')
        created = {
            **admitted,
            "metadata": {
                **admitted["metadata"],
                "uid": self._new_uid(),
                "resourceVersion": self._next_version(),
                "generation": 1,
                "creationTimestamp": time_text(now),
            },
        }
        self._shelves.setdefault(kind, Shelf())[key] = created
        self._happened(Transition(None, created))
        return created

    def update(self, manifest: Manifest) -> Manifest:
        """Admit and store the new form of an object. Raises NotFoundError or InvalidError.

        What the API server owns (uid, creation and deletion times) stays as it was.
        """
        kind, key = manifest["kind"], key_of(manifest)
        old = self.get(kind, key)
        admission.admit_update(old, manifest, self.objects)
        if _content(manifest) == _content(old):
            return old
        owned = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
        metadata = {
            **manifest["metadata"],
            **{name: old["metadata"][name] for name in owned if name in old["metadata"]},
        }
        if _spec(manifest) != _spec(old):
            metadata["generation"] = old["metadata"]["generation"] + 1
        return self._replace(old, {**manifest, "metadata": metadata})

    def delete(self, kind: str, key: Key, now: float, grace_s: float | None = None) -> None:
        """Ask for an object to go, and with it what it owns. Raises NotFoundError or InvalidError.

        A pod that a node has taken goes when its node says so (`remove`), all else at once.
        """
        old = self.get(kind, key)
        admission.admit_delete(old, self.objects)
        if kind != "Pod" or not _held_by_node(old):
            self.remove(kind, key, now)
            return
        if grace_s is None:
            grace_s = old["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
        if grace_s <= 0:
            self.remove(kind, key, now)
            return
        if terminating(old) and grace_s >= old["metadata"]["deletionGracePeriodSeconds"]:
            return
        metadata = {
            **old["metadata"],
            "deletionTimestamp": time_text(now + grace_s),
            "deletionGracePeriodSeconds": grace_s,
        }
        self._replace(old, {**old, "metadata": metadata})

    def remove(self, kind: str, key: Key, now: float) -> None:
        """Take an object out; what it owns is deleted. Raises NotFoundError."""
        old = self.get(kind, key)
        del self._shelves[kind][key]
        gone = {**old, "metadata": {**old["metadata"], "resourceVersion": self._next_version()}}
        self._happened(Transition(gone, None))
        for owned_kind, shelf in self._shelves.items():
            for owned in shelf.owned_by(old["metadata"]["uid"]):
                self.delete(owned_kind, key_of(owned), now)

    def apply(self, change: Change, now: float) -> None:
        """Carry out what an actor decided; what is meanwhile gone, or there already, is passed over."""
        try:
            if isinstance(change, Create):
                self.create(change.manifest, now)
            elif isinstance(change, CreateKeys):
                self.create(ssh.with_keys(change.manifest, *self._new_keys()), now)
            elif isinstance(change, Update):
                self.update(change.manifest)
            elif isinstance(change, Delete):
                self.delete(change.kind, change.key, now, change.grace_s)
        except (NotFoundError, ConflictError):
            return

    def _replace(self, old: Manifest, new: Manifest) -> Manifest:
        stored = {**new, "metadata": {**new["metadata"], "resourceVersion": self._next_version()}}
        self._shelves[old["kind"]][key_of(old)] = stored
        self._happened(Transition(old, stored))
        return stored

    def _happened(self, transition: Transition) -> None:
        self.transitions.append(transition)
        if self._listener is not None:
            self._listener(transition)

    def _next_version(self) -> str:
        self.version += 1
        return str(self.version)


def _held_by_node(pod: Manifest) -> bool:
    """Whether a node still holds what the pod was given; a finished pod's processes are gone."""
    return bool(pod["spec"].get("nodeName")) and not has_ended(pod)


def _content(manifest: Manifest) -> Manifest:
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "resourceVersion"}
    return {**manifest, "metadata": metadata}


def _spec(manifest: Manifest) -> Manifest:
    return {name: value for name, value in manifest.items() if name not in _WITHOUT_GENERATION}
