# SPDX-License-Identifier: Apache-2.0
"""Amounts and durations as people write them in specs and manifests."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

__all__ = ["duration", "duration_text", "is_multiple", "quantity", "quantity_text"]

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([a-zA-Z]{0,2}|[eE][+-]?[0-9]{1,2})")
_FACTORS = {
    "": Decimal(1),
    **{
        suffix: Decimal(1000) ** power
        for suffix, power in zip("numkMGTPE", (-3, -2, -1, 1, 2, 3, 4, 5, 6), strict=True)
    },
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}


def quantity(text: str | float) -> Decimal:
    """The value of a Kubernetes quantity: `500m` is 0.5, `1Gi` is 2**30.

    The grammar is that of k8s.io/apimachinery/pkg/api/resource/quantity.go. Raises ValueError where it is broken.
    """
    match = _QUANTITY.fullmatch(quantity_text(text))
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, suffix = match.groups()
    if suffix in _FACTORS:
        return Decimal(number) * _FACTORS[suffix]
    if suffix[0] in "eE" and len(suffix) > 1 and suffix[-1].isdigit():
        return Decimal(number).scaleb(int(suffix[1:]))
    raise ValueError(f"not a quantity: {text!r} has the unknown suffix {suffix!r}")


def is_multiple(text: str | float, unit: str | float = 1) -> bool:
    """Whether a quantity is a whole number of `unit`; exact for any size, where decimals give up."""
    return (Fraction(quantity(text)) / Fraction(quantity(unit))).denominator == 1


def quantity_text(value: str | float) -> str:
    """A quantity as text; a number is written out without an exponent."""
    return value if isinstance(value, str) else format(Decimal(repr(value)), "f")


def duration(value: str | float) -> float:
    """A duration in seconds, from a number of seconds or a text such as `90s`, `1h30m`, `250ms`.

    Raises ValueError where the text is none.
    """
    if not isinstance(value, str):
        return float(value)
    if not _DURATION.fullmatch(value):
        raise ValueError(f"not a duration: {value!r}")
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(value)))


def duration_text(seconds: float) -> str | float:
    """The shortest way to write a duration so that `duration` gives exactly it back: `5m`, or a number of seconds."""
    if seconds != int(seconds):
        return seconds
    whole = int(seconds)
    for unit, size in (("h", 3600), ("m", 60)):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"
