# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.schemas.records import Phase, ResizeOutcome
from kfp_volcano.volcano.launcher.pauses import SETTLE_STEPS, interruptions, median_step, resize_costs


@dataclass(frozen=True)
class Step:
    time: float
    workers: int


def steps(*parts: tuple[int, int], slow: dict[int, float] | None = None) -> list[Step]:
    """(count, workers) after each other; a step takes 1 s but for those in `slow`."""
    made: list[Step] = []
    time = 0.0
    for count, world in parts:
        for _ in range(count):
            time += (slow or {}).get(len(made), 1.0)
            made.append(Step(time, world))
    return made


def resize(before: int, after: int, requested: float, patched: float | None) -> ResizeOutcome:
    return ResizeOutcome(
        id=f"{before}-{after}-{requested}",
        phase=Phase.DONE if patched is not None else Phase.REFUSED,
        from_workers=before,
        to_workers=after,
        reason="QueueIdle",
        explanation="",
        requested_at=requested,
        executed_by="test",
        patched_at=patched,
    )


def test_pause_is_longest_step_time_less_the_median():
    """The pause is the longest time between two commits around the change, less the median step time."""
    trained = steps((10, 2), (10, 8), slow={10: 1.4, 11: 1.25})
    assert median_step(trained) == 1.0
    [cost] = resize_costs(trained, [resize(2, 8, 7.0, 7.5)], [])
    assert cost is not None
    assert cost.pause_s == pytest.approx(0.4)


def test_slow_steps_of_newcomers_count_and_later_ones_do_not():
    """A slow step within `SETTLE_STEPS` after the change is its pause; the next one is not."""
    last = 10 + SETTLE_STEPS
    for slow, pause in ((last, 0.7), (last + 1, 0.0)):
        [cost] = resize_costs(steps((10, 2), (10, 8), slow={slow: 1.7}), [resize(2, 8, 7.0, 7.5)], [])
        assert cost is not None
        assert cost.pause_s == pytest.approx(pause)


def test_steps_before_the_patch_are_not_its_pause():
    """What was slow before the patch is none of the resize's doing."""
    [cost] = resize_costs(steps((10, 2), (10, 8), slow={4: 3.0}), [resize(2, 8, 2.0, 8.5)], [])
    assert cost is not None
    assert cost.pause_s == 0


def test_growth_in_several_strides_is_one_resize():
    """Workers that join one after the other are all explained by the one resize, and its window spans them."""
    trained = steps((10, 2), (2, 5), (10, 8), slow={12: 1.6})
    [cost] = resize_costs(trained, [resize(2, 8, 8.0, 8.5)], [])
    assert cost is not None
    assert cost.pause_s == pytest.approx(0.6)
    assert interruptions(trained, [resize(2, 8, 8.0, 8.5)], [], initial=2) == []


def test_reclaim_before_the_patch_belongs_to_the_resize():
    """Where Volcano took the surplus before anybody patched, the change between request and patch is the resize's."""
    asked = resize(8, 4, 8.2, 15.5)
    trained = steps((10, 8), (10, 4), slow={10: 1.3})
    [cost] = resize_costs(trained, [asked], [])
    assert cost is not None
    assert cost.pause_s == pytest.approx(0.3)
    assert interruptions(trained, [asked], [], initial=8) == []


def test_a_window_ends_where_the_next_resize_begins():
    """A slow step after the next patch is the next resize's pause alone."""
    trained = steps((10, 2), (2, 4), (10, 8), slow={12: 1.9})
    first, second = resize_costs(trained, [resize(2, 4, 9.0, 9.5), resize(4, 8, 12.1, 12.2)], [])
    assert first is not None
    assert second is not None
    assert first.pause_s == 0
    assert second.pause_s == pytest.approx(0.9)


@pytest.mark.parametrize("patched", [None, 7.5])
def test_a_resize_that_changed_nothing_has_no_cost(patched):
    """Refused, or never followed by a change of membership: no figure rather than a made-up zero."""
    assert resize_costs(steps((20, 2)), [resize(2, 8, 7.0, patched)], [8.0]) == [None]
    assert resize_costs([], [resize(2, 8, 7.0, patched)], [8.0]) == [None]


def test_lost_steps_are_counted_in_their_window_only():
    """An attempt begun within the window and discarded is the resize's; others are not."""
    trained = steps((10, 2), (10, 8))
    [cost] = resize_costs(trained, [resize(2, 8, 7.0, 8.5)], [3.0, 9.0, 10.5, 14.5, 19.0])
    assert cost is not None
    assert cost.steps_lost == 2


def test_a_rollback_within_the_window_is_not_the_resize_s():
    """The step after it is late by what was taken back; the resize paused training for what came after it at most."""
    trained = steps((10, 2), (10, 8), slow={12: 4.0})
    asked = resize(2, 8, 7.0, 8.5)
    (taken,) = resize_costs(trained, [asked], [])
    assert taken is not None
    assert taken.pause_s == pytest.approx(3.0)
    turn = trained[12].time - 1.25
    (cost,) = resize_costs(trained, [asked], [], turned_at=[turn, 1e9])
    assert cost is not None
    assert cost.pause_s == pytest.approx(0.25)


def test_a_killed_worker_and_its_return_are_interruptions():
    """A change that no resize explains is an interruption with its own pause and lost steps."""
    trained = steps((10, 4), (6, 3), (10, 4), slow={10: 1.8, 16: 1.1})
    left, back = interruptions(trained, [], [10.4], initial=4)
    assert (left.from_workers, left.to_workers, left.time) == (4, 3, trained[10].time)
    assert left.cost.pause_s == pytest.approx(0.8)
    assert left.cost.steps_lost == 1
    assert (back.from_workers, back.to_workers) == (3, 4)
    assert back.cost.pause_s == pytest.approx(0.1)
    assert back.cost.steps_lost == 0


def test_a_change_against_the_resize_is_an_interruption():
    """A worker that dies while the Job grows is not hidden by the growth."""
    trained = steps((10, 4), (2, 3), (10, 8))
    [left] = interruptions(trained, [resize(4, 8, 9.0, 9.5)], [], initial=4)
    assert (left.from_workers, left.to_workers) == (4, 3)


def test_first_arrival_is_no_interruption():
    """Workers that come one after the other at the start interrupt nothing; beyond the first size they do."""
    assert interruptions(steps((1, 1), (3, 3), (5, 4)), [], [], initial=4) == []
    assert len(interruptions(steps((1, 1), (3, 3), (5, 4)), [], [], initial=3)) == 1


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8)), min_size=1, max_size=12),
    st.lists(st.tuples(st.floats(0, 60), st.floats(0, 9), st.integers(1, 8), st.integers(1, 8)), max_size=4),
    st.lists(st.floats(0, 80), max_size=5),
)
def test_every_change_is_explained_or_interrupts(parts, asked, lost):
    """Whatever happens, costs are sound, and no more interruptions are told than there were changes."""
    trained = steps(*parts)
    resizes = sorted(
        (resize(before, after, at, at + wait) for at, wait, before, after in asked), key=lambda r: r.requested_at
    )
    costs = resize_costs(trained, resizes, lost)
    assert len(costs) == len(resizes)
    assert all(cost.pause_s >= 0 and 0 <= cost.steps_lost <= len(lost) for cost in costs if cost)
    changes = sum(a.workers != b.workers for a, b in pairwise(trained))
    told = interruptions(trained, resizes, lost, initial=trained[0].workers)
    assert len(told) <= changes
    if not resizes:
        assert len(told) == changes
