# SPDX-License-Identifier: Apache-2.0
"""The log of operations: what is written is read again, whatever happened to the file."""

from __future__ import annotations

import json
import math

import pytest

from kfp_volcano.schemas.events import Event, Kind, read, to_line


def test_an_event_is_one_line_and_reads_as_the_same_event():
    """Newlines in a message do not tear it, and nothing is lost but what JSON cannot hold."""
    event = Event(kind=Kind.LOSS_SPIKE, time=3.5, message="a\nb", owner="w-1", step=4, samples=32, facts={"loss": 1.5})
    line = to_line(event)
    assert line.count("\n") == 1
    assert read({"x.jsonl": [line]}) == [event]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_told_as_text(value):
    """Strict readers of JSON refuse NaN and infinity."""
    line = to_line(Event(kind=Kind.NOT_FINITE, time=0.0, message="", facts={"loss": value, "all": [value]}))
    assert json.loads(line, parse_constant=pytest.fail)["facts"] == {"loss": str(value), "all": [str(value)]}


def test_files_are_joined_by_time_and_what_is_no_event_is_left_out():
    """A torn line, a kind that a newer version has and an empty line are passed over; the file's name is the owner."""
    one = to_line(Event(kind=Kind.STARTED, time=2.0, message="b"))
    two = to_line(Event(kind=Kind.LEFT, time=1.0, message="a"))
    newer = '{"kind": "Teleported", "time": 1, "message": ""}\n'
    found = read({"w-1.jsonl": [one, one[:20], "\n"], "w-2.jsonl": [newer, two]})
    assert [(event.owner, event.kind) for event in found] == [("w-2", Kind.LEFT), ("w-1", Kind.STARTED)]
