# SPDX-License-Identifier: Apache-2.0
"""Real workers that join, leave and die: the same batches and the same losses as one worker alone, always."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
import torch

from kfp_volcano.elastic.runtime import LEFT
from kfp_volcano.schemas.events import Kind
from kfp_volcano.schemas.records import Progress, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.ledger import Audit
    from live.job import Job


def assert_equal(audit: Audit, alone: Audit) -> None:
    """Every sample once, the same batches, and losses that differ by rounding only."""
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing) == (0, 0)
    assert audit.batches_sha256 == alone.batches_sha256
    assert [samples for samples, _ in audit.losses] == [samples for samples, _ in alone.losses]
    assert [loss for _, loss in audit.losses] == pytest.approx([loss for _, loss in alone.losses], rel=1e-3)


def test_joining_and_leaving_costs_no_step(make_job: Callable[..., Job], alone: Callable[[int], Audit]) -> None:
    """Workers that come, and go by SIGTERM, leave no trace in what was learned, and no step is lost to them."""
    job = make_job(epochs=30)
    for pod in ("w-0", "w-1"):
        job.start(pod)
    job.wait_for_steps(5, world=2)
    for pod in ("w-2", "w-3", "w-4"):
        job.start(pod)
    job.wait_for_steps(5, world=5)
    for pod in ("w-0", "w-3", "w-4"):
        job.signal(pod, signal.SIGTERM)
    assert [job.exit_code(pod) for pod in ("w-0", "w-3", "w-4")] == [LEFT] * 3
    assert [job.exit_code(pod) for pod in ("w-1", "w-2")] == [0, 0]
    audit = job.audit()
    assert_equal(audit, alone(30))
    assert audit.lost == ()
    assert {1, 2, 5} <= {commit.world for commit in audit.commits} | {1}
    last = parse(Progress, (job.folder / "reports.jsonl").read_text().splitlines()[-1])
    assert (last.step, last.samples) == (last.total_steps, 103 * 30)
    assert any(change.to_workers == 2 and change.from_workers == 5 for change in last.changes)
    assert {each.workers: each.batch for each in last.measured}[2] == last.batch
    assert all(each.throughput > 0 and each.nodes == 1 for each in last.measured)
    assert last.trend is not None
    assert last.trend.best < audit.losses[0][1]


def test_a_slow_worker_gets_smaller_shares(make_job: Callable[..., Job], alone: Callable[[int], Audit]) -> None:
    """Shares that follow the speeds change nothing in what was learned, nor does a change of workers with them."""
    job = make_job(epochs=30, pace=0.0, sharding="proportional")
    job.start("w-0", SLOWNESS=0.002)
    job.start("w-1", SLOWNESS=0.02)
    job.wait_for_steps(40, world=2)
    job.start("w-2", SLOWNESS=0.002)
    job.wait_for_steps(40, world=3)
    job.signal("w-2", signal.SIGTERM)
    assert [job.exit_code(pod) for pod in ("w-0", "w-1", "w-2")] == [0, 0, LEFT]
    audit = job.audit()
    assert_equal(audit, alone(30))
    assert audit.lost == ()
    shares = [job.shares()[commit.step] for commit in audit.commits if commit.world == 2]
    assert all(sum(share.values()) in {10, 3} for share in shares)
    assert sum(share["w-0"] > 2 * share["w-1"] for share in shares) > len(shares) / 2
    assert shares[0] == {"w-0": 5, "w-1": 5}


def test_a_killed_worker_costs_one_step(make_job: Callable[..., Job], alone: Callable[[int], Audit]) -> None:
    """The others do the step again among themselves; the worker started anew takes part again."""
    job = make_job(epochs=30)
    for pod in ("w-0", "w-1", "w-2"):
        job.start(pod)
    job.wait_for_steps(10, world=3)
    job.kill("w-0")
    job.wait_for_steps(10, world=2)
    job.start("w-0")
    assert [job.exit_code(pod) for pod in ("w-0", "w-1", "w-2")] == [0, 0, 0]
    audit = job.audit()
    assert_equal(audit, alone(30))
    assert len(audit.lost) <= 1
    assert len({commit.world for commit in audit.commits[20:]} & {2, 3}) == 2


def test_all_killed_go_on_from_the_checkpoint(make_job: Callable[..., Job], alone: Callable[[int], Audit]) -> None:
    """What came after the newest whole checkpoint is done again, and is lost work in the audit."""
    job = make_job(epochs=20)
    for pod in ("w-0", "w-1"):
        job.start(pod)
    job.wait(lambda commits: len(commits) > 40 and any((job.folder / "checkpoints").glob("step-*/manifest.json")))
    for pod in ("w-0", "w-1"):
        job.kill(pod)
    newest = max((job.folder / "checkpoints").glob("step-*"))
    (newest / "state.pt").write_bytes(b"damaged")
    for pod in ("w-2", "w-3", "w-4"):
        job.start(pod)
    assert [job.exit_code(pod) for pod in ("w-2", "w-3", "w-4")] == [0, 0, 0]
    audit = job.audit()
    assert_equal(audit, alone(20))
    assert audit.lost


def test_all_told_to_leave_stop_at_the_same_step(make_job: Callable[..., Job], alone: Callable[[int], Audit]) -> None:
    """They leave a checkpoint of their last step behind, so that nothing is done twice."""
    job = make_job(epochs=20)
    for pod in ("w-0", "w-1"):
        job.start(pod)
    job.wait_for_steps(10, world=2)
    for pod in ("w-0", "w-1"):
        job.signal(pod, signal.SIGTERM)
    assert [job.exit_code(pod) for pod in ("w-0", "w-1")] == [LEFT, LEFT]
    job.start("w-2")
    assert job.exit_code("w-2") == 0
    audit = job.audit()
    assert_equal(audit, alone(20))
    assert audit.lost == ()
    manifests = [json.loads(path.read_text()) for path in job.folder.glob("*/manifest.json")]
    assert [manifest["step"] for manifest in manifests] == [len(audit.commits)]


def plain_learning_rates(steps: int) -> list[float]:
    """What the worker's scheduler gives to each step of a loop over batches of one size."""
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=steps)
    found = []
    for _ in range(steps):
        found.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return found


def test_a_batch_that_follows_the_workers_misses_no_sample(make_job: Callable[..., Job]) -> None:
    """Its size and its learning rate are those of the workers there are; shares in parts, a kill and a restart too."""
    scaling = {"rule": "adam-sde", "perWorker": 5, "baseWorkers": 2, "maxPerWorker": 3}
    job = make_job(epochs=30, scaling=scaling, workers=4)
    for pod in ("w-0", "w-1"):
        job.start(pod)
    job.wait_for_steps(10, world=2)
    for pod in ("w-2", "w-3"):
        job.start(pod)
    job.wait_for_steps(10, world=4)
    job.kill("w-0")
    job.wait_for_steps(5, world=3)
    for pod in ("w-1", "w-2", "w-3"):
        job.kill(pod)
    job.start("w-4")
    assert job.exit_code("w-4") == 0
    audit = job.audit()
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing, audit.samples_seen) == (0, 0, 103 * 30)
    before, scheduled = 0, plain_learning_rates(11 * 30)
    for commit in audit.commits:
        batch, rest = commit.samples - before, 103 - before % 103
        assert batch == min(5 * commit.world, rest)
        base = scheduled[before // 103 * 11 + before % 103 // 10]
        assert commit.lr == pytest.approx(base * (commit.world / 2) ** 0.5, rel=1e-9)
        before = commit.samples
    assert {1, 2, 3, 4} == {commit.world for commit in audit.commits} | {1}
    last = parse(Progress, (job.folder / "reports.jsonl").read_text().splitlines()[-1])
    assert (last.step, last.batch, last.lr) == (last.total_steps, 5, audit.commits[-1].lr)


def test_a_worker_whose_answer_was_lost_meets_the_others_again(
    make_job: Callable[..., Job], alone: Callable[[int], Audit]
) -> None:
    """They have the quorum and wait for it in a sum, while it waits for a quorum: all ask again, and nobody is lost."""
    job = make_job(epochs=12)
    job.start("w-0", DEAF_AT=30)
    for pod in ("w-1", "w-2"):
        job.start(pod)
    assert [job.exit_code(pod) for pod in ("w-0", "w-1", "w-2")] == [0, 0, 0]
    audit = job.audit()
    assert_equal(audit, alone(12))
    assert 3 in {commit.world for commit in audit.commits[60:]}


@pytest.mark.slow
def test_a_lost_coordinator_is_found_again(make_job: Callable[..., Job], alone: Callable[[int], Audit]) -> None:
    """Workers outlive it, meet at the next one, take in whoever has come meanwhile, and each tells of it."""
    job = make_job(epochs=40)
    for pod in ("w-0", "w-1"):
        job.start(pod)
    job.wait_for_steps(10, world=2)
    job.kill("coordinator")
    job.start("w-2")
    job.start_coordinator()
    job.wait_for_steps(5, world=3)
    assert [job.exit_code(pod) for pod in ("w-0", "w-1", "w-2")] == [0, 0, 0]
    assert_equal(job.audit(), alone(40))
    told = [(event.kind, event.owner.rpartition("-")[0]) for event in job.events()]
    for pod in ("w-0", "w-1"):
        assert told.count((Kind.COORDINATOR_LOST, pod)) == told.count((Kind.COORDINATOR_BACK, pod)) >= 1
    assert {pod for kind, pod in told if kind is Kind.STARTED} == {"w-0", "w-1", "w-2"}
