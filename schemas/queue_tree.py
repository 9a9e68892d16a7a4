# SPDX-License-Identifier: Apache-2.0
"""The QueueTree: the queues of a cluster and what each may use, as typed values.

`schemas.queue_validation.queue_tree` builds one from a mapping and reports every problem at once; nothing here checks.
Amounts keep Kubernetes' notation (`schemas.quantities` reads it), under the resources' own names: `nvidia.com/gpu`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Amounts", "Plugin", "QueueNode", "QueueTree", "Quota"]

Plugin = Literal["capacity", "proportion"]

Amounts = dict[str, str]
"""Quantities by resource; what a resource's absence means depends on where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What all pods of one namespace together may ask for."""

    namespace: str
    requests: Amounts = field(default_factory=dict)
    jobs: int | None = None
    """The most Volcano Jobs; None: any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNode:
    """A department or a team."""

    name: str
    capability: Amounts = field(default_factory=dict)
    """The most it may use; a resource that is absent is limited by the queue above."""
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    weight: int | None = None
    """Its part of the cluster under the plugin proportion; None: not said, which Volcano reads as 1."""
    priority: int = 0
    reclaimable: bool = True
    closed: bool = False
    quotas: tuple[Quota, ...] = ()
    queues: tuple[QueueNode, ...] = ()

    @property
    def leaf(self) -> bool:
        """Whether it takes Jobs."""
        return not self.queues


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTree:
    """All queues that are managed together. The form on the wire is in `schemas/json/queue-tree.v1.schema.json`."""

    name: str
    plugin: Plugin
    queues: tuple[QueueNode, ...]
    total: Amounts = field(default_factory=dict)
    """What the nodes have in all; empty: not said."""

    def walk(self) -> Iterator[tuple[QueueNode, QueueNode | None]]:
        """Every queue and the one above it, parents before children, in the order they were written."""
        waiting: list[tuple[QueueNode, QueueNode | None]] = [(node, None) for node in self.queues]
        while waiting:
            node, parent = waiting.pop(0)
            yield node, parent
            waiting.extend((child, node) for child in node.queues)
