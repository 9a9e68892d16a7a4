# SPDX-License-Identifier: Apache-2.0
"""The tree of queues: what each may use and deserves of the GPUs, and what pods hold, summed up along the tree.

As Volcano's plugin `capacity` limits queues (`volcano.model.queues` is the same for all resources, cycle by cycle): a
queue may have its capability, and what its parent may have less what is guaranteed to its siblings (realCapability).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.names import GPU, ROOT_QUEUE
from kfp_volcano.volcano.model.objects import labels_of, status_of
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["QueueTree"]

_MILLI = 1000
_SHUT = {"Closing", "Closed"}


@dataclass(frozen=True, slots=True)
class _Queue:
    parent: str
    capability: int | None
    deserved: int | None
    guarantee: int
    reclaimable: bool
    is_open: bool
    labels: Mapping[str, str] = field(default_factory=dict)


class QueueTree:
    """All queues, and what is held in each."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._guaranteed: Counter[str] = Counter()
        """GPUs that are guaranteed to a queue's children."""
        self._held: Counter[str] = Counter()
        self._below: Counter[str] = Counter()
        """What is held in a queue and below it."""
        self._releasing: Counter[str] = Counter()
        self._releasing_below: Counter[str] = Counter()

    @property
    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each queue, by name."""
        return {name: queue.labels for name, queue in self._queues.items()}

    def put(self, name: str, manifest: Manifest | None) -> bool:
        """A queue as it is now, None where it is gone. Returns whether it matters."""
        queue = None if manifest is None else _read(manifest)
        if self._queues.get(name) == queue:
            return False
        if queue is None:
            del self._queues[name]
        else:
            self._queues[name] = queue
        self._guaranteed.clear()
        for each, known in self._queues.items():
            if each != ROOT_QUEUE:
                self._guaranteed[self._parent(each)] += known.guarantee
        self._below, self._releasing_below = self._summed(self._held), self._summed(self._releasing)
        return True

    def hold(self, queue: str, gpus: int, *, leaving: bool) -> None:
        """Account for a pod's GPUs, or take them off where they are negative."""
        self._held[queue] += gpus
        if leaving:
            self._releasing[queue] += gpus
        for each in self._lineage(queue):
            self._below[each] += gpus
            if leaving:
                self._releasing_below[each] += gpus

    def held(self, queue: str) -> int:
        """GPUs of the queue's pods, terminating ones included."""
        return self._held[queue]

    def releasing(self, queue: str) -> int:
        """GPUs of its terminating pods."""
        return self._releasing[queue]

    def limit(self, queue: str, total: int, coming: Mapping[str, int] | None = None) -> int:
        """GPUs that it may use at most, of `total`: the least of what it and each of its ancestors may have.

        Of an ancestor's, the other queues below it may have taken a part, and gangs of theirs may be about to: `coming`
        by queue. One that is closed gets nothing more.
        """
        least, held, arriving = total, self._held[queue], self._summed(coming or {})
        own = (coming or {}).get(queue, 0)
        for name, limit in self._limits(queue, total):
            others = 0 if name == queue else self._below[name] - held + arriving[name] - own
            least = min(least, limit - others)
        return max(0, least if self.is_open(queue) else min(least, held))

    def bounds(self, queue: str, total: int) -> dict[str, int]:
        """The queues above it that have a limit, and how many GPUs each could still have once what leaves is gone."""
        return {
            name: limit - self._below[name] + self._releasing_below[name]
            for name, limit in self._limits(queue, total)
            if name != queue
        }

    def above(self, queue: str) -> tuple[str, ...]:
        """The queues above it, its parent first."""
        return tuple(self._lineage(queue))[1:]

    def _limits(self, queue: str, total: int) -> Iterator[tuple[str, int]]:
        """What it, and each of its ancestors that is limited, may have of `total`; the topmost first."""
        limit = total
        for name in reversed(list(self._lineage(queue))):
            known = self._queues.get(name)
            if known is None:
                continue
            if name != ROOT_QUEUE:
                limit += known.guarantee - self._guaranteed[self._parent(name)]
            if known.capability is not None:
                limit = min(limit, known.capability)
            if queue == ROOT_QUEUE or name != ROOT_QUEUE or known.capability is not None:
                yield name, limit

    def is_open(self, queue: str) -> bool:
        """Whether Volcano places pods of it: of one that is closing, or closed, what runs goes on, and no more."""
        known = self._queues.get(queue)
        return known is None or known.is_open

    def deserved(self, queue: str) -> int | None:
        """GPUs that it has a right to, at least what is guaranteed; None where its spec does not say."""
        known = self._queues.get(queue)
        if known is None or known.deserved is None:
            return None
        return max(known.deserved, known.guarantee)

    def guarantee(self, queue: str) -> int:
        """GPUs that are kept for it though it does not use them."""
        known = self._queues.get(queue)
        return known.guarantee if known else 0

    def lenders(self) -> Iterator[tuple[str, int, int]]:
        """Queues that hold more than they deserve and may be made to give it back: name, GPUs borrowed, deserved."""
        for name, queue in self._queues.items():
            deserved = self.deserved(name)
            if deserved is not None and queue.reclaimable and self._held[name] > deserved:
                yield name, self._held[name] - deserved, deserved

    def _summed(self, each: Mapping[str, int]) -> Counter[str]:
        """What is so in each queue, summed up along the tree."""
        found: Counter[str] = Counter()
        for queue, gpus in each.items():
            for one in self._lineage(queue):
                found[one] += gpus
        return found

    def _lineage(self, queue: str) -> Iterator[str]:
        """The queue itself, its parent, and so on up to the root."""
        seen: set[str] = set()
        while queue not in seen:
            seen.add(queue)
            yield queue
            queue = self._parent(queue)

    def _parent(self, queue: str) -> str:
        known = self._queues.get(queue)
        return known.parent if known and queue != ROOT_QUEUE else ROOT_QUEUE


def _read(manifest: Manifest) -> _Queue:
    spec: Mapping[str, Any] = manifest.get("spec") or {}
    guarantee = _gpus((spec.get("guarantee") or {}).get("resource"))
    return _Queue(
        parent=str(spec.get("parent") or ROOT_QUEUE),
        capability=_gpus(spec.get("capability")),
        deserved=_gpus(spec.get("deserved")),
        guarantee=guarantee or 0,
        reclaimable=spec.get("reclaimable") is not False,
        is_open=status_of(manifest).get("state") not in _SHUT,
        labels=dict(labels_of(manifest)),
    )


def _gpus(quantities: Mapping[str, Any] | None) -> int | None:
    """GPUs in a resource list, None where it does not name them."""
    return parse_quantity(quantities[GPU]) // _MILLI if quantities and GPU in quantities else None
