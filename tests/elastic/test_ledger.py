# SPDX-License-Identifier: Apache-2.0
"""The audit sees exactly what led to the final weights, and every way to spoil it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic import ledger
from kfp_volcano.elastic.sharding import Cursor, Mixture, Plan, share

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Sharding = Callable[[np.ndarray, int, int], np.ndarray]


@dataclass
class Run:
    """A training that only writes ledgers."""

    plan: Plan
    sharding: Sharding = share
    batches: tuple[int, ...] = ()
    """The size of each step's batch, round and round; the plan's where there are none."""
    files: dict[str, list[str]] = field(default_factory=dict)
    clock: float = 0.0
    attempts: int = 0

    def __post_init__(self) -> None:
        plan = self.plan
        self.lineage = ledger.genesis(seed=plan.seed, size=plan.size, batch=plan.batch, epochs=plan.epochs)
        self.step, self.cursor = 0, Cursor()

    def write(self, rank: int, entry: ledger.Entry) -> None:
        self.files.setdefault(f"w-{rank}.jsonl", []).append(ledger.to_line(entry).rstrip("\n"))

    def attempt(self, world: int, *, commit: bool = True, feeders: int | None = None) -> None:
        """One try at the next step; `feeders` workers get as far as feeding."""
        self.clock += 1.0
        self.attempts += 1
        step, plan = self.step, self.plan
        size = self.batches[step % len(self.batches)] if self.batches else plan.batch
        batch = plan.ids(self.cursor, size)
        name = ledger.attempt_digest(self.lineage, f"group {self.attempts}", step)
        for rank in range(world if feeders is None else feeders):
            ids = self.sharding(batch, rank, world).tolist()
            common = {"attempt": name, "step": step, "time": self.clock}
            self.write(
                rank,
                ledger.Feed(epoch=self.cursor.epoch, parent=self.lineage, world=world, rank=rank, ids=ids, **common),
            )
        if not commit:
            self.write(0, ledger.Discard(attempt=name, step=step, time=self.clock, reason="a worker was lost"))
            return
        after = ledger.lineage_digest(self.lineage, name)
        for rank in range(world):
            self.write(
                rank,
                ledger.Commit(
                    attempt=name,
                    step=step,
                    epoch=self.cursor.epoch,
                    parent=self.lineage,
                    lineage=after,
                    world=world,
                    loss=1 / (step + 1),
                    samples=plan.samples(plan.after(self.cursor, len(batch))),
                    time=self.clock + rank / 100,
                ),
            )
        self.lineage, self.step, self.cursor = after, step + 1, plan.after(self.cursor, len(batch))

    def roll_back(self, to: tuple[str, int, Cursor], world: int) -> None:
        """All workers go back to an earlier state."""
        parent, from_step = self.lineage, self.step
        back, self.step, self.cursor = to
        self.lineage = ledger.rollback_digest(parent, back)
        for rank in range(world):
            self.write(
                rank,
                ledger.Rollback(
                    step=self.step,
                    from_step=from_step,
                    parent=parent,
                    to=back,
                    lineage=self.lineage,
                    time=self.clock,
                    reason="the loss leapt up",
                ),
            )

    def skip(self, count: int, world: int) -> None:
        """The next samples are passed over."""
        ids = self.plan.ids(self.cursor, count)
        samples = self.plan.samples(self.plan.after(self.cursor, len(ids)))
        after = ledger.skip_digest(self.lineage, self.cursor.epoch, samples)
        for rank in range(world):
            self.write(
                rank,
                ledger.Skip(
                    step=self.step,
                    epoch=self.cursor.epoch,
                    parent=self.lineage,
                    lineage=after,
                    ids=ids.tolist(),
                    samples=samples,
                    time=self.clock,
                    reason="they led to a fault",
                ),
            )
        self.lineage, self.cursor = after, self.plan.after(self.cursor, len(ids))

    def manifest(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "lineage": self.lineage,
            "step": self.step,
            "size": plan.size,
            "batch": plan.batch,
            "epochs": plan.epochs,
            "seed": plan.seed,
            "last": plan.last,
        }

    def audit(self, **manifest: str) -> ledger.Audit:
        return ledger.audit(self.files, self.manifest() | manifest, expected=due(self.plan))


def due(plan: Plan) -> Callable[[int, int], np.ndarray]:
    """What a plan wants fed, as the audit asks for it."""
    return lambda before, count: plan.ids(plan.cursor(before), count)


def trained(plan: Plan, sizes: list[int], sharding: Sharding = share, batches: tuple[int, ...] = ()) -> Run:
    """A training that goes through, with these numbers of workers."""
    run = Run(plan, sharding, batches)
    while not plan.finished(run.cursor):
        run.attempt(sizes[run.step % len(sizes)])
    return run


PLAN = Plan(size=37, batch=8, epochs=2, seed=3)
STEPS = PLAN.steps_left(Cursor(), PLAN.batch)
plans = st.builds(
    Plan, size=st.integers(1, 80), batch=st.integers(1, 30), epochs=st.integers(1, 3), seed=st.integers(0, 99)
)
events = st.lists(st.sampled_from(["step", "fail", "crash", "die", "save"]), max_size=40)


@given(plans, st.lists(st.integers(1, 6), min_size=1))
def test_i1_i2_i3_a_sound_training_is_sound(plan: Plan, sizes: list[int]) -> None:
    """No duplicates, nothing missing, the digest of any other number of workers, every loss in order."""
    audit = trained(plan, sizes).audit()
    assert (audit.duplicates, audit.missing, audit.problems, audit.lost) == (0, 0, (), ())
    assert audit.samples_seen == audit.samples_expected == plan.size * plan.epochs
    assert audit.batches_sha256 == trained(plan, [1]).audit().batches_sha256
    steps = plan.steps_left(Cursor(), plan.batch)
    assert [samples for samples, _ in audit.losses] == [plan.samples(plan.after_steps(t + 1)) for t in range(steps)]


@given(plans, st.lists(st.integers(1, 6), min_size=1), st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_i9_batches_may_differ_in_size(plan: Plan, sizes: list[int], batches: list[int]) -> None:
    """Whatever the sizes of workers and of batches, every sample is fed once an epoch, and the plan's come next."""
    audit = trained(plan, sizes, batches=tuple(batches)).audit()
    assert (audit.duplicates, audit.missing, audit.problems, audit.lost) == (0, 0, (), ())
    assert audit.samples_seen == audit.samples_expected == plan.size * plan.epochs


@given(plans, st.randoms(use_true_random=False), events)
def test_i6_i11_discarded_work_is_lost_and_never_counted(plan: Plan, rnd: random.Random, story: list[str]) -> None:
    """Failed steps, workers that die while feeding, and restarts from a checkpoint add lost work, and nothing else."""
    run = Run(plan)
    saved = (run.lineage, run.step, run.cursor)
    discarded = 0
    branch = 0
    for event in story:
        if plan.finished(run.cursor):
            break
        if event == "step":
            run.attempt(rnd.randint(1, 5))
            branch += 1
        elif event == "fail":
            run.attempt(rnd.randint(1, 5), commit=False)
            discarded += 1
        elif event == "die":
            world = rnd.randint(2, 5)
            run.attempt(world, commit=False, feeders=rnd.randint(1, world - 1))
            discarded += 1
        elif event == "save":
            saved, branch = (run.lineage, run.step, run.cursor), 0
        else:
            run.lineage, run.step, run.cursor = saved
            discarded, branch = discarded + branch, 0
    while not plan.finished(run.cursor):
        run.attempt(rnd.randint(1, 5))
    audit = run.audit()
    assert (audit.duplicates, audit.missing, audit.problems) == (0, 0, ())
    assert len(audit.lost) == discarded == audit.steps_lost(0, run.clock + 1)
    assert audit.batches_sha256 == trained(plan, [1]).audit().batches_sha256


def test_a_sharding_that_overlaps_is_seen() -> None:
    """Shares that overlap by one sample are duplicates, and no longer the plan's batches."""

    def overlapping(batch: np.ndarray, rank: int, world: int) -> np.ndarray:
        start = max(0, rank * len(batch) // world - 1)
        return batch[start : (rank + 1) * len(batch) // world]

    audit = trained(PLAN, [2], overlapping).audit()
    assert audit.duplicates == STEPS
    assert audit.missing == 0
    assert audit.batches_sha256 != trained(PLAN, [2]).audit().batches_sha256


def test_a_sharding_that_leaves_the_remainder_out_is_seen() -> None:
    """Equal shares of a batch that does not divide lose its remainder: missing samples."""

    def floored(batch: np.ndarray, rank: int, world: int) -> np.ndarray:
        each = len(batch) // world
        return batch[rank * each : (rank + 1) * each]

    audit = trained(PLAN, [3], floored).audit()
    assert audit.missing == sum(len(PLAN.ids(PLAN.after_steps(step), PLAN.batch)) % 3 for step in range(STEPS)) > 0
    assert audit.duplicates == 0
    assert audit.problems


def test_samples_fed_in_another_batch_are_seen() -> None:
    """Every sample once, but two batches swapped: the digest differs and the plan is violated."""

    class Swapped(Plan):
        def ids(self, cursor: Cursor, batch: int) -> np.ndarray:
            return super().ids(Cursor(0, {0: 8, 8: 0}.get(cursor.position, cursor.position)), batch)

    run = trained(Swapped(size=32, batch=8, epochs=1), [2])
    sound = Plan(size=32, batch=8, epochs=1)
    audit = ledger.audit(run.files, run.manifest(), expected=due(sound))
    assert (audit.duplicates, audit.missing) == (0, 0)
    assert [problem.path for problem in audit.problems] == ["step 0", "step 1"]
    assert audit.batches_sha256 != trained(sound, [2]).audit().batches_sha256


def test_a_killed_process_torn_last_line_is_no_damage() -> None:
    """What a SIGKILL cuts off at a file's end is forgiven; the same in its middle is named."""
    run = trained(PLAN, [2])
    run.files["w-9.jsonl"] = [run.files["w-1.jsonl"][0], run.files["w-1.jsonl"][1][:40]]
    run.files["w-9.jsonl"][0] = run.files["w-9.jsonl"][0].replace('"kind":"feed"', '"kind":"leave","reason":""')
    assert not run.audit().problems
    run.files["w-9.jsonl"].reverse()
    assert [problem.path for problem in run.audit().problems] == ["w-9.jsonl:1"]


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda line: {**line, "ids": line["ids"][1:]}, "plan"),
        (lambda line: {**line, "ids": [*line["ids"], 99]}, "outside"),
        (lambda line: {**line, "ids": "many"}, "damaged"),
        (lambda line: {**line, "rank": 7}, "ranks"),
        (lambda line: {**line, "parent": "0" * 32}, "different states"),
        (lambda _: None, "ranks"),
    ],
)
def test_a_spoilt_feed_is_named(spoil: Callable[[dict[str, Any]], dict[str, Any] | None], what: str) -> None:
    """Every alteration of a feed line that counts is a named problem."""
    run = trained(PLAN, [2])
    lines = run.files["w-1.jsonl"]
    at = next(number for number, line in enumerate(lines) if '"feed"' in line)
    changed = spoil(json.loads(lines[at]))
    lines[at : at + 1] = [] if changed is None else [json.dumps(changed)]
    assert any(what in problem.message for problem in run.audit().problems)


def test_a_lost_commit_breaks_the_chain_by_name() -> None:
    """Where no ledger holds a commit, the audit says at which step, and counts what it cannot prove as missing."""
    run = trained(PLAN, [1])
    run.files["w-0.jsonl"] = [
        line for line in run.files["w-0.jsonl"] if '"commit"' not in line or '"step":4' not in line
    ]
    audit = run.audit()
    assert "step 4" in {problem.path for problem in audit.problems}
    assert audit.missing > 0


def test_a_forged_commit_is_named() -> None:
    """A commit whose lineage does not follow from its attempt, or on which workers disagree, is a problem."""
    run = trained(PLAN, [2])
    lines = run.files["w-1.jsonl"]
    at = next(number for number, line in enumerate(lines) if '"commit"' in line)
    lines[at] = json.dumps({**json.loads(lines[at]), "samples": 1})
    assert any("disagrees" in problem.message for problem in run.audit().problems)


def test_metrics_of_abandoned_branches_do_not_show() -> None:
    """Only what was logged in states that led to the final weights is reported."""
    run = Run(PLAN)
    values = {"step": 0, "samples": 0, "epoch": 0, "time": 0.0}
    run.write(0, ledger.Metric(lineage="f" * 32, values={"accuracy": 0.1}, **values))
    run.write(0, ledger.Metric(lineage=run.lineage, values={"accuracy": 0.9}, **values))
    while not PLAN.finished(run.cursor):
        run.attempt(1)
    assert [entry.values for entry in run.audit().metrics] == [{"accuracy": 0.9}]


@given(plans, st.lists(st.sampled_from(["step", "save", "back", "skip"]), max_size=40), st.integers(1, 3))
def test_rollbacks_and_skips_are_no_loss_and_no_repetition(plan: Plan, does: list[str], world: int) -> None:
    """Whatever was taken back, the final weights saw every sample once, but those that were passed over and say so."""
    run = Run(plan)
    saved = [(run.lineage, run.step, run.cursor)]
    for what in does:
        if plan.finished(run.cursor):
            break
        if what == "step":
            run.attempt(world)
        elif what == "save":
            saved.append((run.lineage, run.step, run.cursor))
        elif what == "back":
            run.roll_back(saved[len(saved) // 2], world)
        else:
            run.skip(3, world)
    while not plan.finished(run.cursor):
        run.attempt(world)
    audit = run.audit()
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing) == (0, 0)
    assert audit.samples_seen == audit.samples_expected == plan.size * plan.epochs - audit.skipped
    assert audit.steps_lost(0.0, 1e9) == sum(not lost.taken_back for lost in audit.lost)


def test_what_a_rollback_took_back_is_told_apart_from_what_was_lost() -> None:
    """Steps that counted until then are no cost of a resize at that time."""
    run = Run(PLAN)
    run.attempt(2)
    saved = run.lineage, run.step, run.cursor
    run.attempt(2)
    run.attempt(2, commit=False)
    run.roll_back(saved, 2)
    while not PLAN.finished(run.cursor):
        run.attempt(2)
    audit = run.audit()
    assert [lost.taken_back for lost in audit.lost] == [True, False]
    assert audit.steps_lost(0.0, 1e9) == 1
    assert [(each.step, each.from_step) for each in audit.rollbacks] == [(1, 2)]


def test_a_forged_rollback_is_found() -> None:
    """Its digest follows from where it came from and where it went."""
    run = Run(PLAN)
    run.attempt(1)
    run.roll_back((run.lineage, run.step, run.cursor), 1)
    run.files["w-0.jsonl"][-1] = run.files["w-0.jsonl"][-1].replace(run.lineage, "0" * 32)
    run.lineage = "0" * 32
    while not PLAN.finished(run.cursor):
        run.attempt(1)
    assert "rollback" in str(run.audit().problems[0])


def test_a_training_that_stopped_early_misses_nothing_of_what_was_due() -> None:
    """What comes after is not missing; a sample before that was not fed is."""
    run = Run(PLAN)
    for _ in range(6):
        run.attempt(2)
    manifest = {**run.manifest(), "samples": PLAN.samples(run.cursor), "stopped_early": "no better"}
    audit = ledger.audit(run.files, manifest, expected=due(PLAN))
    assert (audit.problems, audit.duplicates, audit.missing) == ((), 0, 0)
    assert audit.samples_expected == audit.samples_seen == 37 + 8
    assert ledger.audit(run.files, {**manifest, "samples": 60}).missing == 60 - 45


def test_what_is_dropped_is_not_missing() -> None:
    """Where an epoch's incomplete batch is left out, that is said; without the manifest's word it is missing."""
    plan = replace(PLAN, last="drop")
    run = trained(plan, [2, 3])
    audit = run.audit()
    assert (audit.duplicates, audit.missing, audit.problems) == (0, 0, ())
    assert audit.samples_expected == audit.samples_seen == plan.epochs * (plan.size - plan.size % plan.batch)
    silent = run.audit(last="keep")
    assert silent.missing == plan.epochs * (plan.size % plan.batch) > 0


@given(st.lists(st.sampled_from(["step", "skip"]), max_size=12), st.integers(1, 9))
def test_what_is_passed_over_may_be_followed_by_what_is_dropped(does: list[str], count: int) -> None:
    """A piece that is passed over up to an epoch's incomplete batch leaves that one dropped."""
    plan = replace(PLAN, last="drop")
    run = Run(plan)
    for what in does:
        if what == "step" and not plan.finished(run.cursor):
            run.attempt(2)
        elif not plan.finished(run.cursor):
            run.skip(count, 2)
    while not plan.finished(run.cursor):
        run.attempt(2)
    audit = run.audit()
    assert (audit.duplicates, audit.missing, audit.problems) == (0, 0, ())
    assert audit.samples_seen == audit.samples_expected


def test_samples_due_more_often_are_no_duplicates() -> None:
    """Classes in proportion: the verdict is on how often each sample is due in all of the training."""
    mixture = Mixture([0] * 30 + [1] * 3, {0: 1, 1: 1}, size=40)
    plan = Plan(size=40, batch=8, epochs=2, order=mixture)
    run = trained(plan, [2, 3])
    wanted = mixture.due(0, 2)
    audit = run.audit(due=ledger.due_text(wanted))
    assert (audit.duplicates, audit.missing, audit.problems) == (0, 0, ())
    assert (audit.samples_expected, audit.samples_seen) == (80, 80)
    wanted[0] += 1
    wanted[32] -= 2
    other = run.audit(due=ledger.due_text(wanted))
    assert (other.duplicates, other.missing) == (2, 1)
