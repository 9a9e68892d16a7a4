# SPDX-License-Identifier: Apache-2.0
"""The watch: what follows, for how long, and which batches are left out."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.monitoring import Evaluations, Skips, Watch
from kfp_volcano.elastic.sharding import Cursor, Plan
from kfp_volcano.schemas.events import Kind
from kfp_volcano.schemas.monitor import EarlyStop, Evaluate, Monitor, Rollback, Spike

ROLLING_BACK = Monitor(
    loss=Spike(window=5, steps=2, then="rollback"), gradient=Spike(window=5), rollback=Rollback(limit=1)
)


def feed(watch, losses, *, start=0, norm=1.0):
    """What the watch sees in steps of ten samples with these losses."""
    return [
        seen
        for step, loss in enumerate(losses, start=start)
        for seen in watch.observe(
            step=step, cursor=Cursor(0, 10 * step), count=10, samples=10 * step, loss=loss, norm=norm, workers=2
        )
    ]


def test_a_rollback_beyond_the_limit_ends_the_training():
    """What the spec says, until it was done as often as it says."""
    watch = Watch(ROLLING_BACK)
    (seen,) = feed(watch, [1.0] * 6 + [9.0, 9.0])
    assert (seen.kind, seen.step, watch.consequence(seen)) == (Kind.LOSS_SPIKE, 6, "rollback")
    watch.measures.rollbacks = 1
    assert watch.consequence(seen) == "stop"


def test_what_is_over_is_told_too():
    """A recovery follows a spike, once."""
    kinds = [seen.kind for seen in feed(Watch(ROLLING_BACK), [1.0] * 6 + [9.0, 9.0, 1.0, 1.0])]
    assert kinds == [Kind.LOSS_SPIKE, Kind.RECOVERED]


def test_a_gradient_that_is_none_belongs_to_the_step_before():
    """Its length travels with the next step."""
    (seen,) = feed(Watch(ROLLING_BACK), [1.0], start=7, norm=math.nan)
    assert (seen.kind, seen.step, seen.then) == (Kind.NOT_FINITE, 6, "alert")


def test_the_batches_from_one_before_the_fault_on_are_left_out():
    """For a loss is high because of the update before it."""
    watch = Watch(ROLLING_BACK)
    (seen,) = feed(watch, [1.0] * 6 + [9.0, 9.0])
    assert watch.skip(seen.step, watch.batches) == 3
    assert [watch.skips.at(Cursor(0, position)) for position in (40, 50, 60, 79, 80)] == [0, 30, 20, 1, 0]
    assert watch.skips.room(Cursor(0, 45), 10) == 5


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 29), st.integers(1, 9)), max_size=4), st.integers(1, 12))
def test_what_is_passed_over_and_what_is_fed_are_the_epoch(pieces, batch):
    """Whatever the pieces and the batch: each sample is one or the other, once."""
    plan, skips = Plan(size=30, batch=batch, epochs=3), Skips()
    for epoch, position, count in pieces:
        skips.add(Cursor(epoch, position), min(count, 30 - position))
    left_out = {(e, p + k) for e, p, c in pieces for k in range(min(c, 30 - p))}
    cursor, fed, passed = Cursor(), [], []
    while not plan.finished(cursor):
        count = skips.at(cursor)
        here = passed if count else fed
        count = count or len(plan.ids(cursor, skips.room(cursor, batch)))
        here += [(cursor.epoch, cursor.position + k) for k in range(count)]
        cursor = plan.after(cursor, count)
    assert set(passed) == left_out
    assert sorted(fed + passed) == [(epoch, position) for epoch in range(3) for position in range(30)]


def test_a_state_handed_over_goes_on_the_same():
    """Measures, windows and pieces included."""
    watch, other = Watch(ROLLING_BACK), Watch(ROLLING_BACK)
    feed(watch, [1.0] * 6 + [9.0])
    watch.measures.rollbacks = 1
    watch.lower()
    watch.skips.add(Cursor(1, 3), 4)
    other.load_state_dict(watch.state_dict())
    assert other.state_dict() == watch.state_dict()
    assert [seen.kind for seen in feed(other, [9.0], start=7)] == [Kind.LOSS_SPIKE]


def test_patience_counts_evaluations_that_are_no_better():
    """By the least difference, from the best; a value that is none is no better."""
    evaluations = Evaluations(Evaluate(metric="loss", mode="min", early_stop=EarlyStop(patience=2, min_delta=0.1)))
    judged = [evaluations.add(step, {"loss": value}) for step, value in enumerate([1.0, 0.95, 0.8, math.nan, 0.75], 1)]
    assert [each.best for each in judged] == [True, False, True, False, False]
    assert [each.stop for each in judged] == [False, False, False, False, True]


def test_an_evaluation_is_due_once_for_a_state():
    """After so many epochs, or so many steps."""
    by_epochs, by_steps = Evaluations(Evaluate(epochs=2)), Evaluations(Evaluate(steps=3))
    assert [by_epochs.due(steps=5, epoch_ended=ended) for ended in (None, 1, 2)] == [False, False, True]
    assert [by_steps.due(steps=steps, epoch_ended=None) for steps in (2, 3, 4)] == [False, True, True]
    by_steps.add(4, {})
    assert not by_steps.due(steps=6, epoch_ended=1)
    by_epochs.add(5, {})
    assert not by_epochs.due(steps=5, epoch_ended=2)
