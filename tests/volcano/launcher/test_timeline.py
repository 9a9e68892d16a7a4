# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.volcano.launcher import timeline


def line(time, *jobs, queue="research"):
    entries = [
        {"job": job, "team": team, "gpus": gpus, "pending_gpus": pending, "phase": "Running", "workers": None}
        for job, team, gpus, pending in jobs
    ]
    return {"kind": "queue", "time": time, "queue": queue, "limit": 8, "allocated": 0, "jobs": entries}


OURS = ("vision/a", "vision", 4, 0)


def test_gang_is_timed_from_its_first_sight_to_its_end():
    """Submitted when first seen, started when nothing of it is pending, ended when it holds nothing again."""
    lines = [
        line(1, OURS),
        line(2, OURS, ("speech/g", "speech", 0, 4)),
        line(3, OURS, ("speech/g", "speech", 2, 2)),
        line(4, OURS, ("speech/g", "speech", 4, 0)),
        line(9, OURS),
    ]
    [gang] = timeline.other_gangs(lines, "vision")
    assert gang == {"job": "speech/g", "team": "speech", "gpus": 4, "submitted": 2, "started": 4, "ended": 9}


def test_gang_that_never_waited_or_is_our_own_is_left_out():
    """Only gangs of other teams that had to wait are of interest."""
    lines = [line(1, ("vision/b", "vision", 0, 4), ("speech/g", "speech", 2, 0)), line(2)]
    assert timeline.other_gangs(lines, "vision") == []


def test_gang_withdrawn_before_it_started_has_no_start():
    """A gang that gives up waiting ended without having started; one that still waits has neither."""
    lines = [line(1, ("x/a", "x", 0, 4), ("y/b", "y", 0, 2)), line(5, ("y/b", "y", 0, 2))]
    gone, waits = timeline.other_gangs(lines, "vision")
    assert (gone["started"], gone["ended"]) == (None, 5)
    assert (waits["started"], waits["ended"]) == (None, None)


def test_finished_gang_that_stays_in_the_queue_has_ended():
    """A Job that lives on after its end holds no GPUs."""
    lines = [line(1, ("x/a", "x", 0, 4)), line(2, ("x/a", "x", 4, 0)), line(7, ("x/a", "x", 0, 0))]
    assert timeline.other_gangs(lines, "vision")[0]["ended"] == 7


def test_other_queues_and_decisions_are_ignored_and_order_restored():
    """Lines of another queue or kind say nothing here; lines out of order are put right."""
    lines = timeline.queue_lines([line(5), line(2, queue="prod"), {"kind": "decision", "time": 1}, line(3)], "research")
    assert [entry["time"] for entry in lines] == [3, 5]


def test_gpus_are_summed_by_team():
    """A team's series is the sum of its Jobs, noted only where it changes."""
    lines = [
        line(1, OURS, ("vision/b", "vision", 2, 0)),
        line(2, OURS, ("vision/b", "vision", 2, 0), ("speech/g", "speech", 0, 4)),
        line(3, OURS, ("speech/g", "speech", 4, 0)),
    ]
    assert timeline.gpus(lines) == {
        "limit": [[1, 8]],
        "waiting": [[1, 0], [2, 4], [3, 0]],
        "teams": {"speech": [[1, 0], [3, 4]], "vision": [[1, 6], [3, 4]]},
    }


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3))))
def test_steps_keep_the_value_of_every_moment(points):
    """A series gives back every point it was made from, and never repeats a value."""
    points = sorted(points, key=lambda point: point[0])
    series = timeline.steps_of(points)
    assert all(a[1] != b[1] for a, b in pairwise(series))
    if points:
        assert series[-1][1] == points[-1][1]
