"""Workers of two processes each: to the others one worker, to the samples as many processes."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from kfp_volcano.elastic.runtime import LEFT
from kfp_volcano.elastic.runtime.crew import BROKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.ledger import Audit

    from .conftest import Job


def codes(job: Job, *pods: str) -> list[int | None]:
    return [job.exit_code(f"{pod}/{rank}") for pod in pods for rank in range(2)]


def test_workers_of_two_processes_join_leave_and_die(
    make_job: Callable[..., Job], alone: Callable[[int], Audit]
) -> None:
    """Each sample once, the same losses as alone; a process that dies takes its sibling with it, and no other."""
    job = make_job(epochs=60)
    for pod in ("w-0", "w-1"):
        job.start(pod, 2)
    job.wait_for_steps(5, world=4)
    job.start("w-2", 2)
    job.wait_for_steps(5, world=6)
    for rank in range(2):
        job.signal(f"w-0/{rank}", signal.SIGTERM)
    assert codes(job, "w-0") == [LEFT, LEFT]
    job.wait_for_steps(5, world=4)
    job.kill("w-1/1")
    assert job.exit_code("w-1/0") == BROKEN
    job.wait_for_steps(5, world=2)
    job.start("w-1", 2)
    assert codes(job, "w-1", "w-2") == [0] * 4
    audit, expected = job.audit(), alone(60)
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing) == (0, 0)
    assert audit.batches_sha256 == expected.batches_sha256
    assert [loss for _, loss in audit.losses] == pytest.approx([loss for _, loss in expected.losses], rel=1e-3)
    assert {(commit.world, commit.workers) for commit in audit.commits} >= {(4, 2), (6, 3), (2, 1)}
    assert len(audit.lost) <= 1
