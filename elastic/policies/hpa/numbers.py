# SPDX-License-Identifier: Apache-2.0
"""Go's arithmetic where Python's differs: division that rounds towards zero, floats without exceptions, 32 bits. Pure.

The algorithm is specified by what Go computes; a ratio that is off by one rounding is another number of replicas.
"""

from __future__ import annotations

import math

__all__ = ["INT32_MAX", "INT64_MAX", "ceil32", "int32", "quotient", "ratio", "total"]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def int32(value: int) -> int:
    """The value, or the nearest that 32 bits hold.

    Where Go's own conversion would be undefined (a float too large) or wrap around, this saturates.
    """
    return max(-INT32_MAX - 1, min(INT32_MAX, value))


def ceil32(value: float) -> int:
    """The smallest whole number not below a float, saturated; 0 for what is no number."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return INT32_MAX if value > 0 else -INT32_MAX - 1
    return int32(math.ceil(value))


def quotient(dividend: int, divisor: int) -> int:
    """Whole-number division, rounded towards zero."""
    result = abs(dividend) // abs(divisor)
    return result if (dividend < 0) == (divisor < 0) else -result


def ratio(dividend: float, divisor: float) -> float:
    """A float division that gives infinity, or no number, where the divisor is zero."""
    if divisor:
        return float(dividend) / float(divisor)
    return math.nan if not dividend else math.copysign(math.inf, dividend)


def total(values: list[int]) -> int:
    """The sum of an external metric's series, at most what 64 bits hold."""
    result = 0
    for value in values:
        result += value
        if result > INT64_MAX:
            return INT64_MAX
    return result
