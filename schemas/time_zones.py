# SPDX-License-Identifier: Apache-2.0
"""Cron schedules from one time zone in another, where that can be said at all."""

from __future__ import annotations

from datetime import datetime, time, timedelta, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.cron import shifted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from kfp_volcano.schemas.cron import Cron

__all__ = ["moved", "zone"]

LOOKED_AHEAD_DAYS = 2 * 366
"""How far offsets are compared: a year in which the clock changes twice, and the one after."""


def zone(name: str, *, source: str = "time zone") -> ZoneInfo:
    """The time zone of an IANA name such as Europe/Berlin. Raises SpecError where there is none of it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        remedy = "an IANA name such as UTC, Europe/Berlin or Asia/Tokyo"
        raise SpecError([Problem(source, f"{name!r} is no time zone known here", remedy)], source=source) from error


def moved(cron: Cron, given: ZoneInfo, wanted: ZoneInfo, today: date) -> Cron | None:
    """What fires in the zone `wanted` when `cron` fires in `given`, now and in the years to come.

    None where one cron cannot say it, mostly because one of the zones changes its clock and the other does not.
    """
    if given.key == wanted.key:
        return cron
    found = {shifted(cron, minutes) for minutes in _differences(cron, given, wanted, today)}
    return found.pop() if len(found) == 1 else None


def _differences(cron: Cron, given: ZoneInfo, wanted: ZoneInfo, today: date) -> Iterator[int]:
    """By how many minutes the second clock is ahead of the first, in the months in which the cron fires."""
    for ahead in range(LOOKED_AHEAD_DAYS):
        day = today + timedelta(days=ahead)
        if day.month not in cron.months:
            continue
        for moment in (time.min, time.max):  # the clock changes between the two
            there = datetime.combine(day, moment, tzinfo=given).astimezone(timezone.utc)
            first, second = (there.astimezone(each).utcoffset() or timedelta() for each in (given, wanted))
            yield round((second - first).total_seconds() / 60)
