# SPDX-License-Identifier: Apache-2.0
"""Go's durations, as in a policy's `timeout`.

Source: time.ParseDuration of Go, by which metav1.Duration is read.
"""

from __future__ import annotations

import re

__all__ = ["parse_duration"]

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = r"([0-9]*\.?[0-9]+|[0-9]+\.)(ns|us|µs|ms|s|m|h)"
_WHOLE = re.compile(rf"([+-]?)((?:{_PART})+|0)")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `1h2m3.5s`. Raises ValueError where it is none."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        plain = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)", text)
        raise ValueError(f'time: {"missing unit in" if plain else "invalid"} duration "{text}"')
    total = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, match.group(2)))
    return -total if match.group(1) == "-" else total
