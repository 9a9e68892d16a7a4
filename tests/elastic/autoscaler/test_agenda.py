# SPDX-License-Identifier: Apache-2.0
"""What is due when, and at which rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.autoscaler.agenda import Agenda, Pace

NAMES = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("hasten"), NAMES, st.integers(0, 9)),
        st.tuples(st.just("drop"), NAMES),
    )
)


@given(STEPS)
def test_the_earliest_is_due_first(steps: list[tuple[str, ...]]) -> None:
    """Whatever was put, brought forward or dropped before: one time for each name."""
    agenda, times = Agenda(), {}
    for step in steps:
        match step:
            case ("put", name, at):
                agenda.put(name, at)
                times[name] = at
            case ("hasten", name, at):
                agenda.hasten(name, at)
                times[name] = min(at, times.get(name, at))
            case ("drop", name):
                agenda.drop(name)
                times.pop(name, None)
    assert agenda.next_at() == min(times.values(), default=None)
    assert agenda.due(-1) is None
    while times:
        due = agenda.due(10)
        assert times[due] == min(times.values())
        agenda.drop(due)
        del times[due]
    assert agenda.due(10) is None


@given(st.lists(st.floats(0, 2), min_size=1, max_size=50))
def test_a_pace_is_kept(pauses: list[float]) -> None:
    """Two at once after a quiet time, and never more than ten a second and those two; in the order of asking."""
    pace, now, given_out = Pace(per_s=10, burst=2), 0.0, []
    assert [pace.next(now), pace.next(now)] == [0.0, 0.0]
    pace = Pace(per_s=10, burst=2)
    for pause in pauses:
        now += pause
        at = pace.next(now)
        assert at >= now
        given_out.append(at)
    assert given_out == sorted(given_out)
    for first, later in zip(given_out, given_out[2:], strict=False):
        assert later - first >= 0.1 - 1e-9
