# SPDX-License-Identifier: Apache-2.0
"""What a QueueTree's schema cannot say: how queues have to fit each other, and what Volcano makes of their values.

The rules are those of Volcano 1.15.1: the webhook's (pkg/webhooks/admission/queues/validate/validate_queue.go), and
those by which the plugins share (pkg/scheduler/plugins/{capacity,proportion}), where breaking one is accepted by the
webhook and means something else than it says.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.structure import Finding
from kfp_volcano.schemas.wording import dotted, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from kfp_volcano.schemas.structure import Path

__all__ = ["DEEPEST", "findings"]

DEEPEST = 5
"""Levels of queues below root: `--max-queue-depth` of Volcano's webhook manager, by default."""

_FIELDS = ("capability", "deserved", "guarantee")
_DIVISIBLE = {"cpu": Decimal("0.001")}
"""The least amount that Volcano tells apart, where that is not 1."""
_LARGEST = Decimal(2**53)
"""Volcano adds amounts up as 64-bit floating point numbers."""


@dataclass(frozen=True, slots=True)
class _Amount:
    path: Path
    value: Decimal


@dataclass(slots=True)
class _Amounts:
    """The amounts in one mapping that are sound, by the resources' own names."""

    path: Path
    known: dict[str, _Amount] = field(default_factory=dict)
    unsure: bool = False
    """Whether some of what is written could not be read: what is absent may be there."""

    def value(self, resource: str) -> Decimal | None:
        return self.known[resource].value if resource in self.known else None

    def place(self, resource: str) -> Path:
        """Where the amount of a resource is, or would be written."""
        found = self.known.get(resource)
        return found.path if found else (*self.path, names.short_resource(resource))


@dataclass(slots=True)
class _Queue:
    """A queue as written, as far as it can be read."""

    path: Path
    value: Mapping[str, Any]
    above: _Queue | None
    depth: int
    amounts: dict[str, _Amounts] = field(default_factory=dict)
    below: list[_Queue] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What messages call it."""
        name = self.value.get("name")
        return name if isinstance(name, str) else dotted(self.path)

    def below_all(self) -> Iterator[_Queue]:
        """It and every queue below it."""
        yield self
        for child in self.below:
            yield from child.below_all()


def findings(value: Any, broken: Collection[Path]) -> Iterator[Finding]:
    """What breaks a rule in a document, beyond the places its schema already found `broken`."""
    spec = value.get("spec") if isinstance(value, dict) else None
    if not isinstance(spec, dict):
        return
    top = list(_queues(spec, ("spec",), None))
    every = [queue for each in top for queue in each.below_all()]
    wrong = list(_amount_findings(spec, every))
    yield from wrong
    broken = {*broken, *(finding.path for finding in wrong)}
    for queue in every:
        queue.amounts = {name: _read(queue.value, name, queue.path, broken) for name in _FIELDS}
    yield from _names(every, broken)
    plugin = None if ("spec", "plugin") in broken else spec.get("plugin")
    for queue in every:
        if plugin:
            yield from _plugin(queue, plugin)
            yield from _order(queue, plugin)
        yield from _closed(queue)
        if queue.depth == DEEPEST + 1:
            yield Finding(
                queue.path, f"is at level {queue.depth}, and Volcano takes {DEEPEST}", "put it under a queue further up"
            )
    if plugin == "capacity":
        for queue in every:
            yield from _capability(queue)
            if queue.below:
                yield from _sums(queue)
        yield from _total(_read(spec, "total", ("spec",), broken), top)
    yield from _quotas(every, broken)


def _queues(holder: Mapping[str, Any], path: Path, above: _Queue | None) -> Iterator[_Queue]:
    listed = holder.get("queues")
    for index, value in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(value, dict):
            continue
        place = (*path, "queues", index)
        queue = _Queue(place, value, above, above.depth + 1 if above else 1)
        queue.below.extend(_queues(value, place, queue))
        yield queue


def _read(holder: Mapping[str, Any], name: str, path: Path, broken: Collection[Path]) -> _Amounts:
    amounts = _Amounts((*path, name))
    written = holder.get(name, {})
    if amounts.path in broken or not isinstance(written, dict):
        amounts.unsure = True
        return amounts
    for key, text in written.items():
        place = (*amounts.path, key)
        resource = names.resource_name(key)
        if place in broken or resource in amounts.known:
            amounts.unsure = True
        else:
            amounts.known[resource] = _Amount(place, quantity(text))
    return amounts


def _amount_findings(spec: Mapping[str, Any], queues: Collection[_Queue]) -> Iterator[Finding]:
    """Amounts that no queue can have, one by one."""
    for holder, path in ((spec, ("spec",)), *((queue.value, queue.path) for queue in queues)):
        for name in ("total", *_FIELDS):
            yield from _amounts(holder.get(name), (*path, name))
        quotas = holder.get("quotas")
        for namespace, quota in quotas.items() if isinstance(quotas, dict) else ():
            if isinstance(quota, dict):
                yield from _amounts(quota.get("requests"), (*path, "quotas", namespace, "requests"))
    for queue in queues:
        written = queue.value.get("capability")
        for resource in ("cpu", "memory"):
            if isinstance(written, dict) and _is_zero(written.get(resource)):
                place = (*queue.path, "capability", resource)
                yield Finding(place, "0 means no limit to Volcano", "the least it may use, or leave it out")


def _is_zero(text: Any) -> bool:
    try:
        return quantity(text) == 0
    except (ValueError, ArithmeticError, TypeError):
        return False  # the schema has told


def _amounts(written: Any, path: Path) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for key, text in written.items() if isinstance(written, dict) else ():
        resource = names.resource_name(key)
        if resource in seen:
            yield Finding((*path, key), f"is {resource}, which is there as {seen[resource]} too", "name it once")
        seen.setdefault(resource, key)
        try:
            value = quantity(text)
        except (ValueError, ArithmeticError, TypeError):
            continue  # the schema has told
        least = _DIVISIBLE.get(resource, Decimal(1))
        if value > _LARGEST:
            yield Finding((*path, key), f"{shown(text)} is more than Volcano can count", f"at most {_LARGEST:f}")
        elif value % least:
            whole = "no finer than 1m" if resource in _DIVISIBLE else "a whole number"
            yield Finding((*path, key), f"there is no {shown(text)} of {key}", whole)


def _names(queues: Collection[_Queue], broken: Collection[Path]) -> Iterator[Finding]:
    first: dict[str, _Queue] = {}
    for queue in queues:
        place = (*queue.path, "name")
        name = queue.value.get("name")
        if not isinstance(name, str) or place in broken:
            continue
        if name == names.ROOT_QUEUE:
            yield Finding(place, "is Volcano's own queue above all others", "leave it out: the tree begins below it")
        elif name == names.DEFAULT_QUEUE and (queue.above or queue.value.get("queues")):
            yield Finding(
                place,
                "takes the Jobs that name no queue, and is never deleted",
                "keep it at the top, without queues below it, or leave it out",
            )
        if name in first:
            where = dotted(first[name].path)
            yield Finding(place, f"{shown(name)} is the name of {where} too", "a queue's name is one in the cluster")
        first.setdefault(name, queue)


def _plugin(queue: _Queue, plugin: str) -> Iterator[Finding]:
    if plugin == "capacity":
        if "weight" in queue.value:
            yield Finding(
                (*queue.path, "weight"), "means nothing to plugin capacity", "say deserved, or use plugin: proportion"
            )
        return
    if "deserved" in queue.value:
        yield Finding(
            (*queue.path, "deserved"),
            "plugin proportion works out what a queue deserves from its weight",
            "say weight, or use plugin: capacity",
        )
    if "queues" in queue.value:
        yield Finding(
            (*queue.path, "queues"),
            "plugin proportion knows no queues below others",
            "list them side by side, or use plugin: capacity",
        )


def _order(queue: _Queue, plugin: str) -> Iterator[Finding]:
    """For each resource guarantee <= deserved <= capability (validateResourceQuantityOfQueue)."""
    capability, deserved, guarantee = (queue.amounts[name] for name in _FIELDS)
    if plugin == "proportion":
        deserved = guarantee  # rendered so, for the webhook wants it
    for resource, least in guarantee.known.items():
        share = deserved.value(resource)
        if share is None and not deserved.unsure:
            yield Finding(
                deserved.place(resource),
                f"is missing: what is guaranteed has to be deserved, and {_of(least.value)} is guaranteed",
                f"at least {_of(least.value)}",
            )
        elif share is not None and share < least.value:
            yield Finding(
                least.path,
                f"{_of(least.value)} is more than it deserves",
                f"at most {_of(share)}, or a larger deserved",
            )
    for resource, share_ in deserved.known.items():
        most = capability.value(resource)
        if most is not None and most < share_.value:
            yield Finding(
                share_.path,
                f"{_of(share_.value)} is more than its capability",
                f"at most {_of(most)}, or a larger capability",
            )


def _closed(queue: _Queue) -> Iterator[Finding]:
    above = queue.above
    if queue.value.get("closed") is not False:
        return
    while above:
        if above.value.get("closed") is True:
            yield Finding((*queue.path, "closed"), f"is closed with {above.name}, which is above it", "leave it out")
            return
        above = above.above


def _capability(queue: _Queue) -> Iterator[Finding]:
    """No more than the nearest queue above that says one (validateChildAgainstAncestor)."""
    for resource, most in queue.amounts["capability"].known.items():
        above = queue.above
        while above and resource not in above.amounts["capability"].known:
            above = above.above
        limit = above.amounts["capability"].value(resource) if above else None
        if above and limit is not None and most.value > limit:
            yield Finding(
                most.path,
                f"{_of(most.value)} is more than {above.name}, which is above it, may use",
                f"at most {_of(limit)}, or leave it out",
            )


def _sums(queue: _Queue) -> Iterator[Finding]:
    """What is deserved or guaranteed below has to be so here (validateSiblingsSum), and said (unset counts as 0)."""
    for name in ("deserved", "guarantee"):
        own = queue.amounts[name]
        below = _added(queue.below, name)
        unsure = any(child.amounts[name].unsure for child in queue.below)
        for resource, (sum_, parts) in below.items():
            here = own.value(resource)
            if here is None and not own.unsure:
                yield Finding(
                    own.place(resource),
                    f"is missing, which counts as 0, and {parts} below it",
                    f"at least {_of(sum_)}, or leave it out below",
                )
            elif here is not None and here < sum_:
                yield Finding(
                    own.place(resource), f"{_of(here)} is less than {parts} below it", f"at least {_of(sum_)}"
                )
        if name == "deserved" and not unsure:
            for resource in own.known:
                for child in queue.below:
                    if resource not in child.amounts[name].known:
                        yield Finding(
                            child.amounts[name].place(resource),
                            f"is missing, and {queue.name}, which is above it, has it",
                            "its part of that, perhaps 0",
                        )


def _total(total: _Amounts, top: Collection[_Queue]) -> Iterator[Finding]:
    for name in ("deserved", "guarantee"):
        for resource, (sum_, parts) in _added(top, name).items():
            there = total.value(resource)
            if there is not None and there < sum_:
                yield Finding(
                    total.place(resource),
                    f"{_of(there)} is less than the {name} {parts} at the top",
                    f"at least {_of(sum_)}",
                )


def _added(queues: Collection[_Queue], name: str) -> dict[str, tuple[Decimal, str]]:
    """The sum over queues for each resource one of them names, and how it comes about."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    parts: dict[str, list[str]] = defaultdict(list)
    for queue in queues:
        for resource, amount in queue.amounts[name].known.items():
            sums[resource] += amount.value
            parts[resource].append(f"{queue.name} {_of(amount.value)}")
    return {resource: (sum_, " + ".join(parts[resource])) for resource, sum_ in sums.items()}


def _quotas(queues: Collection[_Queue], broken: Collection[Path]) -> Iterator[Finding]:
    first: dict[str, _Queue] = {}
    for queue in queues:
        quotas = queue.value.get("quotas")
        for namespace, quota in quotas.items() if isinstance(quotas, dict) else ():
            place = (*queue.path, "quotas", namespace)
            if place in broken or not isinstance(quota, dict):
                continue
            if namespace in first:
                yield Finding(place, f"{first[namespace].name} has a quota for this namespace, too", "say it once")
            first.setdefault(namespace, queue)
            if not quota.get("requests") and "jobs" not in quota and not queue.value.get("capability"):
                yield Finding(place, "says nothing, and the queue has no capability", "requests: {gpu: 8}, or jobs: 50")


def _of(value: Decimal) -> str:
    """An amount in a message: 2**40 as 1Ti."""
    for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
        if value and value % size == 0:
            return f"{value / size:f}{suffix}"
    return f"{value.normalize():f}"
