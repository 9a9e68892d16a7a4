# SPDX-License-Identifier: Apache-2.0
"""A tree held against a cluster: what each queue is, and what it shall be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.queue_terms import Terms, amounts, same
from kfp_volcano.volcano.manifests.queues import queue_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.volcano.manifests.queue_state import Existing
    from kfp_volcano.volcano.manifests.queues import Target

__all__ = ["Case"]

_DEFAULTS = {"parent": names.ROOT_QUEUE, "weight": 1, "priority": 0, "reclaimable": True}
"""What Volcano takes for a field that a Queue does not have."""
_NOTHING: tuple[Any, ...] = ({}, None, {"resource": {}}, {"resource": None})
"""Values of amounts that say no amount."""


class Case:
    """The tree called `tree`, which wants the queues `wanted`, and a cluster where `there` are."""

    def __init__(self, tree: str, wanted: Mapping[str, Target], there: Mapping[str, Existing]) -> None:
        self.tree, self.wanted, self.there = tree, dict(wanted), dict(there)
        leaving = [name for name in there if self._leaves(name)]
        self.drained = {name: Terms(parent=self._shelter(name)) for name in leaving if there[name].occupants}
        """Queues that have left the tree and are in use: they stay until they are empty, and have nothing."""
        self.ends: dict[str, Terms | None] = {
            **{name: target.terms for name, target in wanted.items()},
            **self.drained,
            **{name: None for name in leaving if name not in self.drained},
        }
        """Every queue that is the tree's, or was, and what it shall be; None: deleted."""

    @property
    def differing(self) -> dict[str, Terms | None]:
        """The queues that are not yet as they shall be."""
        return {name: end for name, end in self.ends.items() if end is None or self._differs(name, end)}

    def closed(self, name: str) -> bool:
        """Whether a queue shall be closed."""
        return name in self.drained or (name in self.wanted and self.wanted[name].closed)

    def is_closed(self, name: str) -> bool:
        """Whether a queue is closed."""
        return name in self.there and self.there[name].closed

    def stored(self, name: str) -> dict[str, Any]:
        """The fields of a queue's spec that the tree decides on, as they are; amounts that say nothing are left out."""
        if name not in self.there:
            return {}
        spec = self.there[name].stored.get("spec") or {}
        settings = self.wanted[name].settings if name in self.wanted else ()
        keys = {"parent", "capability", "deserved", "guarantee", *settings}
        return {key: item for key, item in spec.items() if key in keys and item not in _NOTHING}

    def spec(self, name: str, terms: Terms, before: Mapping[str, Any]) -> dict[str, Any]:
        """Those fields with other terms, written as they were `before` wherever they say the same."""
        after = queue_spec(terms, self.wanted[name].settings if name in self.wanted else {})
        for key in ("capability", "deserved", "guarantee"):
            if key in before and key in after and same(amounts(before[key]), amounts(after[key])):
                after[key] = before[key]
        return {key: item for key, item in after.items() if key in before or item != _DEFAULTS.get(key)}

    def _leaves(self, name: str) -> bool:
        return self.there[name].tree == self.tree and name not in self.wanted and name != names.DEFAULT_QUEUE

    def _differs(self, name: str, end: Terms) -> bool:
        before = self.stored(name)
        return name not in self.there or self.there[name].tree != self.tree or self.spec(name, end, before) != before

    def _shelter(self, name: str) -> str:
        """Where a queue that has left the tree stays until it is empty: the nearest department that is left."""
        for above in self._above(name):
            if above in self.wanted and not self.wanted[above].leaf:
                return above
        return names.ROOT_QUEUE

    def _above(self, name: str) -> Iterator[str]:
        seen = {name}
        parent = self.there[name].terms.parent
        while parent in self.there and parent not in seen:
            yield parent
            seen.add(parent)
            parent = self.there[parent].terms.parent
