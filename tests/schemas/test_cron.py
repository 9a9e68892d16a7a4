# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.cron import Cron, shifted
from kfp_volcano.schemas.time_zones import moved, zone

TODAY = date(2026, 11, 30)


def fires(cron: Cron, moment: datetime) -> bool:
    """The definition, as cron(5) has it: every field matches; of the day fields either, where both are restricted."""
    day, weekday = moment.day in cron.days, moment.isoweekday() % 7 in cron.weekdays
    restricted = len(cron.days) < 31 and len(cron.weekdays) < 7
    return (
        (moment.second in cron.seconds and moment.minute in cron.minutes and moment.hour in cron.hours)
        and moment.month in cron.months
        and ((day or weekday) if restricted else (day and weekday))
    )


@st.composite
def crons(draw: st.DrawFn) -> Cron:
    """Any cron of five fields, as often with a star in each field as not."""

    def some(low: int, high: int) -> st.SearchStrategy[frozenset[int]]:
        every = frozenset(range(low, high + 1))
        return st.just(every) | st.frozensets(st.integers(low, high), min_size=1, max_size=4)

    return Cron(
        frozenset({0}),
        draw(some(0, 59)),
        draw(some(0, 23)),
        draw(some(1, 31)),
        draw(some(1, 12)),
        draw(some(0, 6)),
    )


@pytest.mark.parametrize(
    ("text", "six"),
    [
        ("30 2 * * *", "0 30 2 * * *"),
        ("15 30 2 * * *", "15 30 2 * * *"),
        ("*/20 * * * *", "0 0,20,40 * * * *"),
        ("0 9-17/4 ? * mon-fri", "0 0 9,13,17 * * 1-5"),
        ("0 0 1 JAN,jul *", "0 0 0 1 1,7 *"),
        ("0 0 * * 7", "0 0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 0 * * 0,5,6"),
        ("0 0 * * fri-sun", "0 0 0 * * 0,5,6"),
        ("0 20/2 * * *", "0 0 20,22 * * *"),
        ("@daily", "0 0 0 * * *"),
        (" @Weekly ", "0 0 0 * * 0"),
    ],
)
def test_a_cron_is_written_so_that_every_scheduler_reads_it_alike(text, six):
    """Five fields or six come out as six of plain numbers and ranges, the second first."""
    assert Cron.parse(text).six() == six


@given(crons())
def test_what_is_written_means_what_was_read(cron):
    """Writing and reading come to the same cron, in five fields and in six."""
    assert Cron.parse(cron.six()) == cron == Cron.parse(cron.five())


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * * *", "7 fields"),
        ("@every 1h", "2 fields"),
        ("60 * * * *", "not within 0 to 59"),
        ("* 24 * * *", "not within 0 to 23"),
        ("* * 0 * *", "not within 1 to 31"),
        ("* * * 13 *", "not within 1 to 12"),
        ("* * * * 8", "not within 0 to 6"),
        ("5-1 * * * *", "from the lower to the higher"),
        ("*/0 * * * *", "a step is at least 1"),
        ("L * * * *", "'L' is neither a number nor a name"),
        ("* * * * mo", "'mo' is neither"),
        ("1,,2 * * * *", "'' is neither"),
        ("-1 * * * *", "'' is neither"),
        ("² * * * *", "'²' is neither"),
        ("0 0 */2 * 1", "read differently by different crons"),
    ],
)
def test_what_is_no_cron_is_refused_with_its_field(text, word):
    """The error says which field, and what would be right."""
    with pytest.raises(SpecError, match="cron") as refused:
        Cron.parse(text)
    assert word in str(refused.value)


def test_all_fields_that_are_wrong_are_said_at_once():
    """One error lists them all."""
    with pytest.raises(SpecError) as refused:
        Cron.parse("61 25 32 13 9")
    assert len(refused.value.problems) == 5


def test_seconds_do_not_fit_in_five_fields():
    """A scheduler without seconds does not get a schedule that needs them."""
    with pytest.raises(SpecError, match="seconds 30"):
        Cron.parse("30 0 * * * *").five()


@given(crons(), st.integers(-16 * 60, 16 * 60), st.dates(TODAY, date(2030, 1, 1)))
def test_a_shifted_cron_fires_exactly_when_the_first_did_so_long_ago(cron, minutes, near):
    """Whatever `shifted` returns fires at a moment if and only if the given cron fired `minutes` before it."""
    later = shifted(cron, minutes)
    if later is None:
        return
    start = datetime.combine(near, time.min, tzinfo=timezone.utc)
    for step in range(0, 3 * 24 * 60, 7):
        moment = start + timedelta(minutes=step)
        assert fires(later, moment) == fires(cron, moment - timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("text", "there", "utc"),
    [
        ("30 2 * * *", "UTC", "30 2 * * *"),
        ("30 2 * * *", "Asia/Tokyo", "30 17 * * *"),
        ("30 2 * * mon", "Asia/Tokyo", "30 17 * * 0"),
        ("30 2 * * *", "Asia/Kolkata", "0 21 * * *"),
        ("0 * * * *", "Europe/Berlin", "0 * * * *"),
        ("0 6 * 12,1 *", "Europe/Berlin", "0 5 * 1,12 *"),
        ("0 20 1 * *", "America/Phoenix", None),
        ("0 12 1 * *", "America/Phoenix", "0 19 1 * *"),
        ("30 2 * * *", "Europe/Berlin", None),
        ("0 6 * 3 *", "Europe/Berlin", None),
        ("0,30 2,3 * * *", "Asia/Kolkata", None),
        ("0 2,20 * * 1", "Asia/Tokyo", None),
    ],
)
def test_a_cron_of_a_zone_is_moved_to_utc_where_one_cron_can_say_it(text, there, utc):
    """Not where the zone's clock changes in the months it fires, nor where dates or hours would be torn apart."""
    found = moved(Cron.parse(text), zone(there), zone("UTC"), TODAY)
    assert (found and found.five()) == (Cron.parse(utc).five() if utc else None)


def test_a_moved_cron_fires_at_the_same_instants():
    """Through a whole year, instant by instant: the cron in its zone, and the moved one in UTC."""
    cron, tokyo = Cron.parse("0,30 1-5/2 * * mon,sat"), zone("Asia/Tokyo")
    utc = moved(cron, tokyo, zone("UTC"), TODAY)
    start = datetime(2026, 12, 1, tzinfo=timezone.utc)
    for half_hours in range(48 * 366):
        instant = start + timedelta(minutes=30 * half_hours)
        assert fires(utc, instant) == fires(cron, instant.astimezone(tokyo))


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../etc/passwd", "Europe", "utc+1"])
def test_a_zone_that_is_not_known_is_refused(name):
    """Whatever is written in place of a zone's name, the answer is a word, not a traceback."""
    with pytest.raises(SpecError, match="no time zone"):
        zone(name)
