# SPDX-License-Identifier: Apache-2.0
"""The laws of sharding, by their names in the design's reference (I1 … I13), over random trainings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.sharding import (
    Cursor,
    Files,
    Order,
    Pace,
    Plan,
    Sequential,
    apportion,
    blocks,
    edges,
    order,
    quotas,
)


@st.composite
def orders(draw: st.DrawFn) -> Order | None:
    """Every order that feeds each sample once an epoch, over a small dataset."""
    kind = draw(st.sampled_from(["shuffled", "sequential", "blocks", "files", "streams"]))
    if kind in {"files", "streams"}:
        counts = draw(st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(sum))
        return Files(counts, mixed=draw(st.integers(1, 5)), streams=kind == "streams")
    size = draw(st.integers(1, 250))
    if kind == "blocks":
        return blocks(size, draw(st.integers(1, 40)), mixed=draw(st.integers(1, 4)))
    return Sequential(size) if kind == "sequential" else None


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A training's data: any dataset, order, batch, and rule for the last batch of an epoch."""
    found = draw(orders())
    return Plan(
        size=found.size if found else draw(st.integers(1, 250)),
        batch=draw(st.integers(1, 60)),
        epochs=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 2**32)),
        last=draw(st.sampled_from(["keep", "drop", "pad"])),
        order=found,
    )


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=20)
"""The number of workers at each step, round and round."""
speeds = st.floats(0.01, 100.0)


@dataclass
class Step:
    """What a step fed."""

    cursor: Cursor
    count: int
    shares: list[np.ndarray]
    padding: list[int]
    """Copies without weight in each share."""

    @property
    def batch(self) -> list[int]:
        return np.concatenate(self.shares).tolist()


@dataclass
class Run:
    """A training whose number of workers, and batch, follow a list; the state is what a checkpoint would hold."""

    plan: Plan
    workers: list[int]
    batches: list[int] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    """By rank, where shares are to be proportional."""

    def steps(self, state: dict[str, Any] | None = None) -> list[Step]:
        """All steps from a state on."""
        found = []
        state = state or self.state(0, Cursor(), Pace())
        while not self.plan.finished(Cursor(*state["cursor"])):
            step, state = self.step(state)
            found.append(step)
        return found

    def state(self, steps: int, cursor: Cursor, pace: Pace) -> dict[str, Any]:
        held = {"steps": steps, "cursor": [cursor.epoch, cursor.position], "pace": pace.state_dict()}
        return json.loads(json.dumps(held))

    def step(self, state: dict[str, Any]) -> tuple[Step, dict[str, Any]]:
        """The step that follows a state, and the state after it."""
        steps, cursor, pace = state["steps"], Cursor(*state["cursor"]), Pace()
        pace.load_state_dict(state["pace"])
        world = self.workers[steps % len(self.workers)]
        batch = self.batches[steps % len(self.batches)] if self.batches else self.plan.batch
        ids, width = self.plan.ids(cursor, batch), self.plan.width(cursor, batch)
        name = f"{world} workers"
        if self.speed:
            cut = [edges(pace.shares(width, rendezvous=name, world=world), rank) for rank in range(world)]
            fed = [len(ids[start:end]) for start, end in cut]
            pace.committed(name, [(rank, n, n / self.speed[rank]) for rank, n in enumerate(fed)])
        else:
            cut = [edges(apportion(width, [1.0] * world), rank) for rank in range(world)]
        shares = [ids[start:end] for start, end in cut]
        padding = [end - start - len(ids[start:end]) for start, end in cut]
        after = self.plan.after(cursor, len(ids))
        return Step(cursor, len(ids), shares, padding), self.state(steps + 1, after, pace)


@st.composite
def runs(draw: st.DrawFn, *, batches: bool = True) -> Run:
    """Any training: uniform or proportional shares, batches of one size or of many."""
    return Run(
        draw(plans()),
        draw(sizes),
        draw(st.lists(st.integers(1, 60), max_size=6)) if batches else [],
        draw(st.one_of(st.just([]), st.lists(speeds, min_size=9, max_size=9))),
    )


def epochs_of(run: Run, steps: list[Step]) -> list[list[int]]:
    """The samples that each epoch fed, in order."""
    return [
        [sample for step in steps if step.cursor.epoch == epoch for sample in step.batch]
        for epoch in range(run.plan.epochs)
    ]


def dropped(run: Run, steps: list[Step], epoch: int) -> int:
    """How many samples an epoch left out by its rule for the last batch."""
    last = [step for step in steps if step.cursor.epoch == epoch][-1]
    left = run.plan.size - last.cursor.position - last.count
    assert left < run.plan.batch
    return left


@given(runs())
def test_i1_every_sample_is_fed(run: Run) -> None:
    """The shares of all workers in all phases hold every sample of each epoch; `drop` leaves less than a batch out."""
    steps = run.steps()
    for epoch, ids in enumerate(epochs_of(run, steps)):
        left = dropped(run, steps, epoch)
        assert set(ids) <= set(range(run.plan.size))
        assert len(set(ids)) == run.plan.size - left
        assert left == 0 or run.plan.last == "drop"


@given(runs())
def test_i2_no_sample_is_fed_twice(run: Run) -> None:
    """Each at most once an epoch; copies only by `pad`, fewer than a batch, in the last batch, and without weight."""
    steps = run.steps()
    for epoch, ids in enumerate(epochs_of(run, steps)):
        assert len(ids) == len(set(ids))
        padded = [step for step in steps if step.cursor.epoch == epoch and sum(step.padding)]
        assert len(padded) <= (1 if run.plan.last == "pad" else 0)
        for step in padded:
            batch = step.count + sum(step.padding)
            assert step.cursor.position + step.count == run.plan.size
            assert sum(step.padding) < batch
            assert batch in (run.batches or [run.plan.batch])


@given(runs(batches=False), sizes)
def test_i3_a_batch_does_not_depend_on_the_workers(run: Run, other: list[int]) -> None:
    """Global batch t is the same, in the same order, for every sequence of sizes and however it is shared out."""
    batches = [step.batch for step in run.steps()]
    assert batches == [step.batch for step in Run(run.plan, other).steps()]


@given(runs())
def test_i4_the_shares_add_up_to_the_batch(run: Run) -> None:
    """Whatever the speeds, the shares of a step hold as many samples as its batch."""
    for number, step in enumerate(run.steps()):
        batch = run.batches[number % len(run.batches)] if run.batches else run.plan.batch
        assert sum(len(share) for share in step.shares) == step.count
        assert step.count == min(batch, run.plan.size - step.cursor.position)


@given(runs())
def test_i5_the_cursor_only_goes_forward(run: Run) -> None:
    """Each step moves it by what the step holds, or to the epoch's end; it ends with all epochs."""
    steps = run.steps()
    cursors = [step.cursor for step in steps] + [Cursor(run.plan.epochs)]
    for step, (here, there) in zip(steps, pairwise(cursors), strict=True):
        assert here < there
        moved = run.plan.samples(there) - run.plan.samples(here)
        left = dropped(run, steps, here.epoch) if there.epoch > here.epoch else 0
        assert moved == step.count + left
        assert run.plan.cursor(run.plan.samples(there)) == there


@given(runs(), st.data())
def test_i6_any_checkpoint_is_followed_by_the_same_rest(run: Run, data: st.DataObject) -> None:
    """A fresh process that knows only the plan and a checkpoint feeds every worker what it would have been fed."""
    states, steps = [run.state(0, Cursor(), Pace())], []
    while not run.plan.finished(Cursor(*states[-1]["cursor"])):
        step, state = run.step(states[-1])
        steps.append(step)
        states.append(state)
    at = data.draw(st.integers(0, len(steps)))
    order.cache_clear()
    again = replace(run, plan=replace(run.plan)).steps(states[at])
    assert [[s.tolist() for s in step.shares] for step in again] == [
        [s.tolist() for s in step.shares] for step in steps[at:]
    ]


@given(plans(), st.integers(1, 9), st.integers(1, 9))
def test_i7_a_size_and_back_is_no_change(plan: Plan, world: int, between: int) -> None:
    """W → W' → W feeds each worker what it would have fed without the detour."""
    straight, detour = Run(plan, [world]).steps(), Run(plan, [world, between, world]).steps()
    for number, (one, other) in enumerate(zip(straight, detour, strict=True)):
        if number % 3 != 1:
            assert [share.tolist() for share in one.shares] == [share.tolist() for share in other.shares]


@given(runs(), st.integers(2, 200))
def test_i8_the_state_does_not_grow(run: Run, times: int) -> None:
    """A checkpoint holds the same few numbers of the data however large it is and however far training has come."""
    plan = Plan(size=run.plan.size * times, batch=run.plan.batch, epochs=run.plan.epochs * times)
    least = run.state(0, Cursor(), Pace())
    far = run.state(plan.epochs * plan.size, Cursor(plan.epochs - 1, plan.size - 1), Pace())
    assert len(json.dumps(far)) <= len(json.dumps(least)) + 60
    pace, world = Pace(), 9
    for step in range(100):
        pace.committed("always", [(rank, 1, 1 + (rank + step) % 3) for rank in range(world)])
    assert len(json.dumps(pace.state_dict())) < 300 * world


@given(plans(), sizes, st.lists(st.integers(1, 60), min_size=1, max_size=9))
def test_i9_other_batches_walk_the_same_order(plan: Plan, workers: list[int], batches: list[int]) -> None:
    """Where the batch follows the size, the batches differ, but each epoch is the same walk through the same order."""
    varied, plain = Run(plan, workers, batches), Run(plan, [1])
    for one, other in zip(epochs_of(varied, varied.steps()), epochs_of(plain, plain.steps()), strict=True):
        shorter = min(len(one), len(other))
        assert one[:shorter] == other[:shorter]
        assert plan.last == "drop" or len(one) == len(other)


@given(plans(), sizes)
def test_i10_the_order_does_not_depend_on_the_workers(plan: Plan, workers: list[int]) -> None:
    """An epoch's permutation is a bijection of (seed, epoch), whoever asks for which part of it first."""
    plan = replace(plan, last="keep")
    whole = [plan.ids(Cursor(epoch), plan.size).tolist() for epoch in range(plan.epochs)]
    run = Run(plan, workers)
    assert epochs_of(run, run.steps()) == whole
    assert all(sorted(ids) == list(range(plan.size)) for ids in whole)


@given(runs(), st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), min_size=1, max_size=5))
def test_i11_a_crash_repeats_only_what_no_checkpoint_holds(run: Run, crashes: list[tuple[int, int]]) -> None:
    """Whenever all die, and however rare checkpoints are, what counts is a training without crashes."""
    states, counted, repeated, left = [run.state(0, Cursor(), Pace())], [], 0, list(crashes)
    saved, until = 0, left[0][0]
    while not run.plan.finished(Cursor(*states[-1]["cursor"])):
        step, state = run.step(states[-1])
        counted.append(step)
        states.append(state)
        until -= 1
        if left and len(counted) % left[0][1] == 0:
            saved = len(counted)
        if left and until == 0:
            repeated += len(counted) - saved
            del counted[saved:], states[saved + 1 :]
            left.pop(0)
            until = left[0][0] if left else -1
    assert repeated <= sum(steps for steps, _ in crashes)
    assert [step.batch for step in counted] == [step.batch for step in run.steps()]


@given(st.integers(0, 400), st.lists(speeds, min_size=1, max_size=12))
def test_i12_shares_follow_speeds(count: int, speed: list[float]) -> None:
    """Largest remainder: within 1 of the quota, all of the batch, 1 at least each where there are enough.

    Where no minimum binds, no worker ends later than an ideal division would, plus one sample of the slowest.
    """
    shares, exact = apportion(count, speed), quotas(count, speed)
    assert sum(shares) == count
    assert sum(exact) == pytest.approx(count)
    assert all(abs(share - quota) < 1 + 1e-9 for share, quota in zip(shares, exact, strict=True))
    if count >= len(speed):
        assert min(shares) >= 1
    plain = [count * each / sum(speed) for each in speed]
    if exact == pytest.approx(plain):
        ends = max(share / each for share, each in zip(shares, speed, strict=True))
        assert ends <= (count / sum(speed) + 1 / min(speed)) * (1 + 1e-9)


@given(runs())
def test_i13_workers_never_share_a_sample(run: Run) -> None:
    """At every step the workers' shares are disjoint, and follow each other in the batch without a gap."""
    for step in run.steps():
        parts = [set(share.tolist()) for share in step.shares]
        assert sum(len(part) for part in parts) == len(set().union(*parts))
        assert step.batch == run.plan.ids(step.cursor, step.count).tolist()
