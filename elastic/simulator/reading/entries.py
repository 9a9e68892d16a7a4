# SPDX-License-Identifier: Apache-2.0
"""Entries of a JSON list: what each field says, and what is wrong with it by entry and field."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.simulator.reading.table import LARGEST_TIME, moment

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.reading.table import Complaints

__all__ = ["Entry", "moment_of"]


class Entry:
    """An entry; complaints name it by its number in the list, from 1."""

    __slots__ = ("_complaints", "_number", "_value", "sound")

    def __init__(self, number: int, value: Any, complaints: Complaints) -> None:
        self.sound = True
        """Whether nothing was wrong with what was asked for so far."""
        self._number = number
        self._complaints = complaints
        self._value: dict[str, Any] = value if isinstance(value, dict) else {}
        if not isinstance(value, dict):
            self.wrong("", "is no mapping", "a job: {jobid: …, attempts: […]}")

    def wrong(self, field: str, message: str, remedy: str = "") -> None:
        """Complain of a field."""
        self.sound = False
        self._complaints.add(self._number, field, message, remedy)

    def text(self, field: str, *, default: str | None = None) -> str:
        """A field's text; what is missing is wrong where there is no default."""
        value = self._value.get(field, default)
        if isinstance(value, str) and value.isprintable() and (value or default == ""):
            return value
        self.wrong(field, "is missing" if value in (None, "") else "is no text", "some text")
        return ""

    def time(self, field: str) -> float:
        """A moment, Unix seconds."""
        found = moment_of(self._value.get(field))
        if found is None:
            self.wrong(field, f"{str(self._value.get(field))[:40]!r} is no time", "such as 2017-10-03 14:05:59")
            return math.nan
        return found

    def list(self, field: str) -> list[Any]:
        """A field's list."""
        value = self._value.get(field, [])
        if isinstance(value, list):
            return value
        self.wrong(field, "is no list", "[] where there is nothing")
        return []


def moment_of(value: Any) -> float | None:
    """A moment in Unix seconds; None where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 <= value <= LARGEST_TIME else None
    if not isinstance(value, str):
        return None
    try:
        return moment(value)
    except ValueError:
        return None
