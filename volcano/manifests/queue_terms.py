# SPDX-License-Identifier: Apache-2.0
"""What queues are to each other: their place in the hierarchy, their amounts, and the rules both have to keep.

The rules are those of Volcano's webhook (validateHierarchicalQueue, validateHierarchicalQueueResources in
pkg/webhooks/admission/queues/validate/validate_queue.go, 1.15.1), a little stricter where it looks no further than the
nearest queue: whatever `Forest.refusal` lets pass, the webhook lets pass.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import quantities
from kfp_volcano.schemas.names import ROOT_QUEUE
from kfp_volcano.schemas.queue_rules import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kfp_volcano.schemas.queue_tree import Amounts

__all__ = ["Forest", "Terms", "alike", "amounts", "least", "same", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What of a queue matters to others: the queue above it, and its amounts."""

    parent: str = ROOT_QUEUE
    capability: Amounts = field(default_factory=dict)
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)


@lru_cache(maxsize=4096)
def value(text: str) -> Decimal:
    """The value of an amount."""
    return quantities.quantity(text)


def amounts(stored: Mapping[str, Any] | None) -> Amounts:
    """The amounts in a stored field, of a guarantee those in its `resource`; API objects hold text or numbers."""
    found = stored or {}
    found = (found["resource"] or {}) if "resource" in found else found
    return {name: quantities.quantity_text(text) for name, text in found.items()}


def same(one: Amounts, other: Amounts) -> bool:
    """Whether two mappings say the same amounts, however they are written."""
    return one.keys() == other.keys() and all(value(text) == value(other[name]) for name, text in one.items())


def alike(one: Terms, other: Terms) -> bool:
    """Whether two queues have the same place and the same amounts."""
    return one.parent == other.parent and all(
        same(getattr(one, key), getattr(other, key)) for key in ("capability", "deserved", "guarantee")
    )


def least(amounts: Iterable[Amounts]) -> Amounts:
    """For each resource that any of the mappings names, the smallest amount."""
    smallest: Amounts = {}
    for each in amounts:
        for name, text in each.items():
            if name not in smallest or value(text) < value(smallest[name]):
                smallest[name] = text
    return smallest


class Forest:
    """The queues of a cluster below root, one by one changed."""

    def __init__(self, terms: Mapping[str, Terms]) -> None:
        self._terms: dict[str, Terms] = {}
        self._below: dict[str, dict[str, None]] = defaultdict(dict)
        for name, each in terms.items():
            self.put(name, each)

    def __contains__(self, name: object) -> bool:
        return name in self._terms

    def __getitem__(self, name: str) -> Terms:
        return self._terms[name]

    def put(self, name: str, terms: Terms) -> None:
        """Add a queue, or give it other terms."""
        self.remove(name)
        self._terms[name] = terms
        self._below[terms.parent][name] = None

    def remove(self, name: str) -> None:
        """Take a queue out, if it is there."""
        old = self._terms.pop(name, None)
        if old:
            del self._below[old.parent][name]

    def below(self, name: str) -> list[str]:
        """The queues right below one."""
        return list(self._below.get(name, ()))

    def below_all(self, name: str) -> Iterator[str]:
        """Every queue below one, parents first."""
        waiting = self.below(name)
        while waiting:
            each = waiting.pop(0)
            yield each
            waiting.extend(self.below(each))

    def above_all(self, name: str) -> list[str]:
        """The queues above one, the nearest first, without root; empty for root and for a name that is not there."""
        above: list[str] = []
        while name in self._terms and self._terms[name].parent != ROOT_QUEUE:
            name = self._terms[name].parent
            if name in above:
                break  # a circle made behind the webhook's back
            above.append(name)
        return above

    def limits(self, name: str) -> Amounts:
        """The most that a queue may use by its own capability and those of the queues above it."""
        return least(self._terms[each].capability for each in (name, *self.above_all(name)) if each in self._terms)

    def refusal(self, name: str, terms: Terms) -> str:
        """Why Volcano would not take the queue `name` with these terms as things stand; empty where it would."""
        refusals = (*_order(terms), *self._place(name, terms))
        return next(iter(refusals), "") or next(self._amounts(name, terms), "")

    def _place(self, name: str, terms: Terms) -> Iterator[str]:
        parent = terms.parent
        if parent == ROOT_QUEUE:
            return
        if parent not in self._terms:
            yield f"there is no queue {parent}"
        elif name in {parent, *self.above_all(parent)}:
            yield f"{parent} is below it"
        elif len(self.above_all(parent)) + 2 > DEEPEST:
            yield f"it would be at level {len(self.above_all(parent)) + 2}, and Volcano takes {DEEPEST}"

    def _amounts(self, name: str, terms: Terms) -> Iterator[str]:
        limits = self.limits(terms.parent)
        yield from _beyond(terms.capability, limits, "its capability")
        limits = least((limits, terms.capability))
        for each in self.below_all(name):
            yield from _beyond(self._terms[each].capability, limits, f"the capability of {each}")
        siblings = [self._terms[each] for each in self.below(terms.parent) if each != name]
        if terms.parent != ROOT_QUEUE:
            yield from _sums(terms.parent, self._terms[terms.parent], [*siblings, terms])
        yield from _sums("it", terms, [self._terms[each] for each in self.below(name)])


def _order(terms: Terms) -> Iterator[str]:
    """Guarantee <= deserved <= capability; what is guaranteed is deserved."""
    for name, text in terms.guarantee.items():
        if name not in terms.deserved or value(terms.deserved[name]) < value(text):
            yield f"its guarantee of {name}, {text}, is more than it deserves"
    yield from _beyond(terms.deserved, terms.capability, "what it deserves")


def _beyond(amounts: Amounts, limits: Amounts, what: str) -> Iterator[str]:
    for name, text in amounts.items():
        if name in limits and value(text) > value(limits[name]):
            yield f"{what}, {name} {text}, is more than {limits[name]}"


def _sums(name: str, above: Terms, below: Iterable[Terms]) -> Iterator[str]:
    """What is deserved and guaranteed below has to be so above, resource by resource; 0 of one counts as naming it."""
    for what in ("deserved", "guarantee"):
        sums: dict[str, Decimal] = defaultdict(Decimal)
        for each in below:
            for resource, text in getattr(each, what).items():
                sums[resource] += value(text)
        own: Amounts = getattr(above, what)
        for resource, sum_ in sums.items():
            if resource not in own or value(own[resource]) < sum_:
                yield f"{name} has less {what} {resource} than the queues below it, {sum_:f}"
