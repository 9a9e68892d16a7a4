# SPDX-License-Identifier: Apache-2.0
"""What came out of a rehearsal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Line", "RehearsalError", "Verdict"]


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at."""

    right: bool
    what: str


class RehearsalError(Exception):
    """The scenario cannot go on: the script failed, or did not come where it had to in time."""


@dataclass(slots=True)
class Verdict:
    """Lines in the order in which things happened."""

    lines: list[Line] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    """Numbers behind the lines."""

    def add(self, what: str, *, right: bool = True, **figures: Any) -> None:
        """Adds a line and the numbers behind it."""
        self.lines.append(Line(right, what))
        self.figures.update(figures)

    @property
    def right(self) -> bool:
        """Whether all was as it must be."""
        return all(line.right for line in self.lines)

    def __str__(self) -> str:
        return "\n".join(f"{'ok   ' if line.right else 'WRONG'} {line.what}" for line in self.lines)
