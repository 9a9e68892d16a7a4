# SPDX-License-Identifier: Apache-2.0
"""Tables of text, line by line: what each field says, and what is wrong with it by line and column."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.elastic.simulator.reading.sources import Source

__all__ = ["LARGEST_TIME", "Complaints", "Row", "Table", "moment", "read_header"]

LARGEST_TIME = 1e11
"""Seconds: some three thousand years. What is later is in milliseconds, most likely."""
_NOTHING = frozenset({"", "none", "null", "nan", "na", "n/a", "-"})
_MOST_GPUS = 1_000_000
_LONGEST = 40
_MOST_PROBLEMS = 1000
"""Told one by one; of what else is wrong the lines are told."""


@dataclass(slots=True)
class Complaints:
    """What is wrong in a file."""

    source: str
    unit: str = "line"
    """What is counted: lines of a table, entries of a list."""
    problems: list[Problem] = field(default_factory=list)
    others: list[int] = field(default_factory=list)
    """Lines with problems beyond those that are told one by one."""

    def add(self, line: int, column: str, message: str, remedy: str = "") -> None:
        """Something that is wrong on a line."""
        if len(self.problems) < _MOST_PROBLEMS:
            place = f"{self.unit} {line}"
            self.problems.append(Problem(f"{place}, {column}" if column else place, message, remedy))
        elif not self.others or self.others[-1] != line:
            self.others.append(line)

    def raise_if_any(self) -> None:
        """Raises SpecError with everything that was added."""
        if not self.problems:
            return
        found = list(self.problems)
        if self.others:
            many = self.unit.removesuffix("y") + ("ies" if self.unit.endswith("y") else "s")
            found.append(
                Problem(f"{many} {_ranges(self.others)}", "are wrong too", "mend the first ones, and try again")
            )
        raise SpecError(found, source=self.source)


class Row:
    """A line of a table. What a field cannot be is a complaint, and NaN, 0 or empty text for the reader."""

    __slots__ = ("_complaints", "_values", "line", "sound")

    def __init__(self, line: int, values: Mapping[str, str], complaints: Complaints) -> None:
        self.line = line
        self.sound = True
        """Whether nothing was wrong with what was asked for so far."""
        self._values = values
        self._complaints = complaints

    def wrong(self, column: str, message: str, remedy: str = "") -> None:
        """Complain of a field."""
        self.sound = False
        self._complaints.add(self.line, column, message, remedy)

    def absent(self, column: str) -> bool:
        """Whether a field says that there is nothing."""
        return self._values.get(column, "").strip().lower() in _NOTHING

    def text(self, column: str, *, default: str | None = None) -> str:
        """A field's text; what is missing is wrong where there is no default."""
        value = self._values.get(column, "").strip()
        if value and value.isprintable():
            return value
        if not value and default is not None:
            return default
        self.wrong(column, "is empty" if not value else f"{_shown(value)} holds what cannot be printed", "some text")
        return ""

    def number(self, column: str, *, least: float = 0.0, most: float = LARGEST_TIME, unit: str = "seconds") -> float:
        """A number within bounds."""
        text = self._values.get(column, "").strip()
        right = f"a number of {unit}, at least {least:g}"
        try:
            value = float(text)
        except ValueError:
            self.wrong(column, "is empty" if not text else f"{_shown(text)} is no number", right)
            return math.nan
        if not math.isfinite(value) or "_" in text:
            self.wrong(column, f"{_shown(text)} is no number", right)
        elif value < least:
            self.wrong(column, f"{_shown(text)} is too small", right)
        elif value > most:
            self.wrong(column, f"{_shown(text)} is too large", f"at most {most:g}; {unit}, not thousandths of them")
        return value

    def whole(self, column: str, *, least: int = 0, most: int = _MOST_GPUS, unit: str = "GPUs") -> int:
        """A whole number within bounds."""
        sound = self.sound
        self.sound = True
        value = self.number(column, least=least, most=most, unit=unit)
        if self.sound and value != int(value):
            self.wrong(column, f"{_shown(self._values[column])} is not whole", f"a whole number of {unit}")
        found = int(value) if self.sound else 0
        self.sound = self.sound and sound
        return found

    def time(self, column: str) -> float:
        """A moment: seconds from whatever the trace counts from, or a date and time (UTC where it does not say)."""
        text = self._values.get(column, "").strip()
        if text[:1].isdigit() and ("-" in text or ":" in text or "/" in text):
            try:
                return moment(text)
            except ValueError:
                self.wrong(column, f"{_shown(text)} is no time", "such as 2017-10-03 14:05:59")
                return math.nan
        return self.number(column, unit="seconds, or a time such as 2017-10-03 14:05:59")


class Table:
    """The lines of a table, under the names in its first."""

    def __init__(self, source: Source, columns: Sequence[str] = ()) -> None:
        """Begin to read.

        Args:
            source: The file.
            columns: Their names, where the first line is not a header.
        """
        self.complaints = Complaints(source.name)
        self.name = source.name
        self._source = source
        self._columns = columns

    def rows(self) -> Iterator[Row]:
        """Each line that has the header's number of fields; of others it complains, and goes on."""
        lines = _lines(self._source.text)
        reader = csv.reader(lines, delimiter=_delimiter(lines), strict=True, skipinitialspace=True)
        columns = list(self._columns)
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                self.complaints.add(line, "", _quoting(str(error)), 'a field that holds a comma in "quotes", closed')
                continue
            if not fields or (len(fields) == 1 and not fields[0].strip()):
                continue
            if not columns:
                columns = [each.strip().lower() for each in fields]
                continue
            if len(fields) != len(columns):
                self.complaints.add(
                    line, "", f"has {len(fields)} fields", f"{len(columns)}, as the header: {', '.join(columns)}"
                )
                continue
            yield Row(line, dict(zip(columns, fields, strict=True)), self.complaints)


def read_header(source: Source) -> list[str]:
    """The fields of the first line that has some, in lower case. Raises SpecError where there is none."""
    lines = _lines(source.text)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise SpecError([Problem(source.name, "is empty", "a header, and a line for each job")], source=source.name)
    try:
        return [each.strip().lower() for each in next(csv.reader([first], delimiter=_delimiter(lines)))]
    except csv.Error:
        return []


def _lines(text: str) -> list[str]:
    """Lines as they end anywhere: not at the characters at which `splitlines` would end them besides."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _delimiter(lines: Sequence[str]) -> str:
    """What stands between the fields of the first line."""
    first = next((line for line in lines if line.strip()), "")
    return max(",\t;", key=first.count)


def _quoting(words: str) -> str:
    if "field larger" in words:
        return "has a field of more than 131,072 characters"
    if "unexpected end" in words:
        return "has a quote that is never closed"
    return f"cannot be taken apart: {words}"


def moment(text: str) -> float:
    """A date and time, in UTC where it does not say, as Unix seconds. Raises ValueError where it is none."""
    if text.endswith(("Z", "z")):
        text = text[:-1] + "+00:00"
    value = datetime.fromisoformat(text.replace("/", "-").removesuffix(" UTC"))
    return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp()


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else text[:_LONGEST] + "…")


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as people write them: 3, 7-9."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)
