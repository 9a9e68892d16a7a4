# SPDX-License-Identifier: Apache-2.0
"""Numbers of things in sentences."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: float, noun: str) -> str:
    """A number of things: `1 worker`, `4 workers`, `12,000 samples`.

    Args:
        number: how many.
        noun: one of them, of a regular plural.
    """
    return f"{number:,g} {noun}" if number == 1 else f"{number:,} {noun}s"
