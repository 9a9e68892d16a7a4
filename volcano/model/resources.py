# SPDX-License-Identifier: Apache-2.0
"""Amounts of resources: Kubernetes quantities and sums of them, in thousandths of a unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

__all__ = [
    "POD",
    "QUANTITY",
    "Resources",
    "add",
    "canonical",
    "exceeded",
    "format_quantity",
    "lacking",
    "minus",
    "parse_quantity",
    "pod_request",
    "put",
    "quantities",
    "resources",
]

Resources: TypeAlias = Mapping[str, int]
"""Thousandths of a unit, by resource name; an absent name is nothing."""

POD = "pods"
"""The resource of which each pod takes one."""

QUANTITY = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
"""`resource.ParseQuantity`'s own expression (k8s.io/apimachinery/pkg/api/resource/quantity.go)."""

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}  # fmt: skip
_MILLI = 1000


def parse_quantity(text: str | float) -> int:
    """A quantity in thousandths, rounded up. Raises ValueError where it is none."""
    match = QUANTITY.match(str(text))
    if match is None:
        raise ValueError(f"quantities must match the regular expression '{QUANTITY.pattern}'")
    number, suffix = match.groups()
    scale = _SUFFIXES.get(suffix)
    if scale is None:
        if suffix[:1] not in {"e", "E"}:
            raise ValueError(f"unable to parse quantity's suffix: {suffix!r}")
        number, scale = number + suffix, Decimal(1)
    try:
        value = Decimal(number)
    except ArithmeticError as error:
        raise ValueError(f"not a number: {number!r}") from error
    return int((value * scale * _MILLI).to_integral_value(rounding="ROUND_CEILING"))


def canonical(text: str | float) -> str:
    """A quantity as Kubernetes writes it: without a fraction, in the largest unit of its kind, `1` for `1000m`.

    Source: CanonicalizeBytes (k8s.io/apimachinery/pkg/api/resource/quantity.go); exponents are written out.
    """
    milli, binary = parse_quantity(text), str(text).endswith("i")
    if milli % _MILLI:
        return f"{milli}m"
    amount, base, unit = milli // _MILLI, 1024 if binary else 1000, ""
    for larger in ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei") if binary else ("k", "M", "G", "T", "P", "E"):
        if not amount or amount % base:
            break
        amount, unit = amount // base, larger
    return f"{amount}{unit}"


def format_quantity(milli: int) -> str:
    """Thousandths as a quantity."""
    whole, rest = divmod(milli, _MILLI)
    return f"{milli}m" if rest else str(whole)


def resources(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """A resource list of the API as numbers."""
    return {name: parse_quantity(text) for name, text in (quantities or {}).items()}


def quantities(amounts: Resources) -> dict[str, str]:
    """Numbers as a resource list of the API; what is zero is left out."""
    return {name: format_quantity(amount) for name, amount in sorted(amounts.items()) if amount}


def add(left: Resources, right: Resources, *, times: int = 1) -> dict[str, int]:
    """The sum of `left` and `times` times `right`."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + times * amount
    return total


def put(total: dict[str, int], more: Resources, times: int = 1) -> None:
    """Add `times` times `more` to a sum, in place; what comes to nothing is left out."""
    for name, amount in more.items():
        changed = total.get(name, 0) + times * amount
        if changed:
            total[name] = changed
        else:
            total.pop(name, None)


def minus(left: Resources, right: Resources) -> dict[str, int]:
    """What of left remains when right is taken off, never below zero."""
    return {name: max(0, amount - right.get(name, 0)) for name, amount in left.items()}


def exceeded(used: Resources, limit: Resources, asked: Resources) -> list[str]:
    """Which of the resources asked for would exceed a limit; what the limit does not name is unlimited."""
    return [name for name, amount in asked.items() if amount and name in limit and used.get(name, 0) > limit[name]]


def lacking(asked: Resources, room: Resources) -> list[str]:
    """Which of the resources asked for a room has too little of, or none."""
    return [name for name, amount in asked.items() if amount > max(0, room.get(name, 0))]


def pod_request(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod asks of its node: the sum of its containers or its largest init container, each where larger.

    A sidecar (an init container that runs on) counts beside the containers and the init containers after it. A limit
    counts as the request where there is none, as the API server fills it in.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers", ()):
        total = add(total, _container_request(container))
    if not spec.get("initContainers"):
        return total
    beside: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container in spec["initContainers"]:
        request = add(_container_request(container), beside)
        if container.get("restartPolicy") == "Always":
            beside = request
        for name, amount in request.items():
            largest[name] = max(largest.get(name, 0), amount)
    total = add(total, beside)
    return {name: max(total.get(name, 0), largest.get(name, 0)) for name in {**total, **largest}}


def _container_request(container: Mapping[str, Any]) -> dict[str, int]:
    stated = container.get("resources") or {}
    return resources({**(stated.get("limits") or {}), **(stated.get("requests") or {})})
