# SPDX-License-Identifier: Apache-2.0
"""Real workers of which one is slow, or hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfp_volcano.elastic.runtime import LEFT
from kfp_volcano.elastic.runtime.watchdog import HUNG
from kfp_volcano.schemas.events import Event, Kind, read
from live.job import Job

_SCRIPT = Path(__file__).with_name("laggard.py")


def events(job: Job) -> list[Event]:
    """The log of operations, of the kinds in question."""
    lines = {path.name: path.read_text().splitlines() for path in (job.folder / "events").glob("*.jsonl")}
    return [event for event in read(lines) if event.kind in {Kind.HANG, Kind.STRAGGLER}]


@pytest.mark.slow
def test_a_worker_that_hangs_ends_and_the_others_go_on(tmp_path: Path) -> None:
    """It costs the step that it hung in; the others, which waited for it, are not taken for hanging."""
    job = Job(tmp_path / "job", _SCRIPT, {"EPOCHS": 8, "SLOW": {}, "HANG": "w-1"}, settings={"hang_s": 2.0})
    try:
        job.start_coordinator()
        for pod in ("w-0", "w-1", "w-2"):
            job.start(pod)
        assert job.exit_code("w-1") == HUNG
        job.start("w-1")
        assert [job.exit_code(pod) for pod in ("w-0", "w-1", "w-2")] == [0, 0, 0]
        audit = job.audit()
    finally:
        job.end()
    assert [event.kind for event in events(job)] == [Kind.HANG]
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing) == (0, 0)
    assert len(audit.lost) <= 2


@pytest.mark.slow
def test_a_straggler_is_told_and_leaves_without_losing_a_step(tmp_path: Path) -> None:
    """`restart`: the slow one leaves by itself, as after a SIGTERM, and is started again; no other one is accused."""
    settings = {"straggler_factor": 3.0, "straggler_window": 10, "straggler_then": "restart"}
    job = Job(tmp_path / "job", _SCRIPT, {"EPOCHS": 15, "SLOW": {"w-1": 0.15}, "HANG": ""}, settings=settings)
    try:
        job.start_coordinator()
        for pod in ("w-0", "w-1", "w-2"):
            job.start(pod)
        assert job.exit_code("w-1") == LEFT
        assert [job.exit_code(pod) for pod in ("w-0", "w-2")] == [0, 0]
        audit = job.audit()
    finally:
        job.end()
    told = events(job)
    assert [(event.kind, event.facts["pod"]) for event in told] == [(Kind.STRAGGLER, "w-1")]
    assert told[0].facts["times"] > 3
    assert (audit.duplicates, audit.missing, audit.lost) == (0, 0, ())
