# SPDX-License-Identifier: Apache-2.0
"""Cron expressions: what they mean, said once, and written in the form that each scheduler reads alike.

The grammar is that of github.com/robfig/cron, which Kubernetes' and Volcano's CronJobs (v3, five fields) and KFP's
recurring runs (v1, six fields, seconds first) parse with; Sunday may also be 7, as in cron(5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Cron", "shifted"]

MINUTES_A_DAY = 24 * 60
_FIVE, _SIX = 5, 6


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def all(self) -> frozenset[int]:
        return frozenset(range(self.low, self.high + 1))


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SECOND, _MINUTE, _HOUR = _Field("second", 0, 59), _Field("minute", 0, 59), _Field("hour", 0, 23)
_DAY = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTHS)
_WEEKDAY = _Field("day of week", 0, 6, _WEEKDAYS)
_FIELDS = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True)
class Cron:
    """The moments at which a schedule fires: those whose every field is among the given.

    Where `days` and `weekdays` are both restricted, a day counts that is in either, as in cron(5).
    """

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    """Of the month, from 1."""
    months: frozenset[int]
    """From 1."""
    weekdays: frozenset[int]
    """From Sunday, which is 0."""

    @classmethod
    def parse(cls, text: str, *, source: str = "cron") -> Cron:
        """Read five fields (minute, hour, day of month, month, day of week), six (second first), or a name like @daily.

        Raises:
            SpecError: Lists every field that is wrong, and what would be right.
        """
        fields = _NAMED.get(text.strip().lower(), text).split()
        if len(fields) not in (_FIVE, _SIX):
            raise SpecError(
                [
                    Problem(
                        source,
                        f"{text!r} has {len(fields)} fields",
                        "five: minute hour day-of-month month day-of-week; a second may come first; "
                        f"or one of {', '.join(_NAMED)}",
                    )
                ],
                source=source,
            )
        if len(fields) == _FIVE:
            fields = ["0", *fields]
        read = [_read(written, field, source) for field, written in zip(_FIELDS, fields, strict=True)]
        problems = [each for each in read if isinstance(each, Problem)]
        if not problems and _read_differently(fields[3], fields[5]):
            problems.append(
                Problem(
                    source,
                    f"day of month {fields[3]!r} with day of week {fields[5]!r} is read differently by different crons",
                    "restrict one of the two, or list the days instead of the step",
                )
            )
        if problems:
            raise SpecError(problems, source=source)
        return cls(*(each for each in read if not isinstance(each, Problem)))

    def five(self) -> str:
        """Minute, hour, day of month, month, day of week. Raises SpecError where it needs seconds."""
        if self.seconds != frozenset({0}):
            raise SpecError(
                [Problem("cron", f"fires at the seconds {_said(self.seconds, _SECOND)}", "give five fields")]
            )
        return " ".join(self._fields()[1:])

    def six(self) -> str:
        """The same with the second first."""
        return " ".join(self._fields())

    def _fields(self) -> list[str]:
        values = (self.seconds, self.minutes, self.hours, self.days, self.months, self.weekdays)
        return [_said(each, field) for each, field in zip(values, _FIELDS, strict=True)]


def shifted(cron: Cron, minutes: int) -> Cron | None:
    """The cron that fires `minutes` later than this one, at the same seconds; None where no single one does.

    There is none where the shift takes only some of its moments to another day or tears its hours from its minutes, and
    where it moves dates: months are not equally long.
    """
    moved = [hour * 60 + minute + minutes for hour in cron.hours for minute in cron.minutes]
    hours = frozenset(moment % MINUTES_A_DAY // 60 for moment in moved)
    past_hours = frozenset(moment % 60 for moment in moved)
    if len(moved) != len(hours) * len(past_hours):
        return None
    later = replace(cron, hours=hours, minutes=past_hours)
    days = {moment // MINUTES_A_DAY for moment in moved}
    every_date = cron.days == _DAY.all and cron.months == _MONTH.all
    if days == {0} or (every_date and cron.weekdays == _WEEKDAY.all):
        return later
    if len(days) > 1 or not every_date:
        return None
    return replace(later, weekdays=frozenset((weekday + days.copy().pop()) % 7 for weekday in cron.weekdays))


def _read(written: str, field: _Field, source: str) -> frozenset[int] | Problem:
    try:
        return _values(written, field)
    except ValueError as error:
        return Problem(source, f"{field.name} {written!r}: {error}")


def _values(written: str, field: _Field) -> frozenset[int]:
    """The values of a field: `*`, `?`, a number or name, a range, each with a step, several with commas."""
    return frozenset(value for part in written.split(",") for value in _range(part, field))


def _range(part: str, field: _Field) -> Iterable[int]:
    span, slash, step_text = part.partition("/")
    step = _number(step_text) if slash else 1
    if step < 1:
        raise ValueError("a step is at least 1")
    if span in ("*", "?"):
        return range(field.low, field.high + 1, step)
    first, dash, last = span.partition("-")
    low = _value(first, field)
    high = _value(last, field) if dash else field.high if slash else low
    sunday_last = field is _WEEKDAY and dash and high in (0, 7) and low > 0
    highest = 7 if field is _WEEKDAY else field.high
    if sunday_last:
        high = 7
    if not field.low <= low <= highest or not low <= high <= highest:
        raise ValueError(f"{part!r} is not within {field.low} to {field.high}, from the lower to the higher")
    values = range(low, high + 1, step)
    return (value % 7 for value in values) if field is _WEEKDAY else values


def _value(text: str, field: _Field) -> int:
    name = text.lower()
    return field.names.index(name) + field.low if name in field.names else _number(text)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is neither a number nor a name it knows")
    return int(text)


def _read_differently(day: str, weekday: str) -> bool:
    """Whether a step after a star decides if both fields must match (robfig/cron v1, cron(5)) or either (v3)."""
    stars = [text for text in (day, weekday) if text[0] in "*?"]
    return not any(text in ("*", "?") for text in (day, weekday)) and bool(stars)


def _said(values: frozenset[int], field: _Field) -> str:
    """A field as `*` or as numbers and ranges, which every cron reads alike."""
    if values == field.all:
        return "*"
    ordered = sorted(values)
    breaks = [0, *(at for at, (one, two) in enumerate(pairwise(ordered), 1) if two != one + 1), len(ordered)]
    runs = [ordered[start:end] for start, end in pairwise(breaks)]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)  # noqa: PLR2004 - a range of two is a list
