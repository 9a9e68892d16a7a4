# SPDX-License-Identifier: Apache-2.0
"""Real workers with loaders, that join, leave and die: no sample twice, none missing, none fetched again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from kfp_volcano.elastic import ledger
from kfp_volcano.elastic.runtime import LEFT
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from live.job import Job

SCRIPT = Path(__file__).with_name("loading_worker.py")


def test_what_was_fetched_ahead_survives_resizes(
    make_job: Callable[..., Job], alone: Callable[[int], ledger.Audit], tmp_path: Path
) -> None:
    """Two join, one leaves, one is killed: the losses of one worker alone, and nobody fetches a sample twice an epoch.

    A process reads ahead by two steps; what it has read is still due to somebody, and to itself after the next resize.
    """
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    job = make_job(epochs=30, script=SCRIPT)
    for pod in ("w-0", "w-1"):
        job.start(pod, FETCHED=str(fetched))
    job.wait_for_steps(10, world=2)
    for pod in ("w-2", "w-3"):
        job.start(pod, FETCHED=str(fetched))
    job.wait_for_steps(10, world=4)
    job.signal("w-2", signal.SIGTERM)
    job.wait_for_steps(10, world=3)
    job.kill("w-0")
    job.wait_for_steps(10, world=2)
    assert [job.exit_code(pod) for pod in ("w-1", "w-2", "w-3")] == [0, LEFT, 0]
    audit = job.audit()
    assert (audit.problems, audit.duplicates, audit.missing) == ((), 0, 0)
    expected = alone(30)
    assert audit.batches_sha256 == expected.batches_sha256
    assert [loss for _, loss in audit.losses] == pytest.approx([loss for _, loss in expected.losses], rel=1e-3)
    worlds = [commit.world for commit in audit.commits]
    assert {2, 3, 4} <= set(worlds)
    for notes in fetched.iterdir():
        lines = notes.read_text().splitlines()
        assert len(set(lines)) == len(lines)
    # Four times others' samples became due to a process, or its own to others: two steps' shares had been fetched.
    everything = sum(len(notes.read_text().splitlines()) for notes in fetched.iterdir())
    assert 103 * 30 <= everything <= 103 * 30 + 4 * 3 * 10


def test_each_process_of_a_worker_has_fetchers_of_its_own(make_job: Callable[..., Job], tmp_path: Path) -> None:
    """Torchrun's processes, which talk with each other already when they start them."""
    job = make_job(epochs=20, script=SCRIPT)
    job.start("w-0", processes=2, WORKERS=1)
    job.wait_for_steps(5, world=2)
    job.start("w-1", processes=2, WORKERS=1)
    job.wait_for_steps(5, world=4)
    assert [job.exit_code(name) for name in ("w-0/0", "w-0/1", "w-1/0", "w-1/1")] == [0] * 4
    audit = job.audit()
    assert (audit.problems, audit.duplicates, audit.missing) == ((), 0, 0)


def begin(folder: Path, **given: object) -> subprocess.Popen[str]:
    """The script as a Job of one process, in a process group of its own; returns when it trains."""
    program = f"import runpy; runpy.run_path({str(SCRIPT)!r}, {given!r}, '__main__')"
    environ = {**os.environ, names.ENV_JOB_DIR: str(folder)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environ, start_new_session=True, text=True)
    while not any('"commit"' in path.read_text() for path in folder.glob("ledger/*.jsonl")):
        assert process.poll() is None
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    return process


def test_fetchers_end_with_the_process_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves no process behind."""
    process = begin(tmp_path, EPOCHS=100_000)
    fetchers = psutil.Process(process.pid).children(recursive=True)
    assert len(fetchers) == 2
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(fetchers, timeout=30)
    assert alive == []


def test_a_signal_to_the_process_group_lets_the_step_end(tmp_path: Path) -> None:
    """Torchrun and agents signal the whole group: the fetchers outlive it, and training leaves as it was told to."""
    process = begin(tmp_path, EPOCHS=100_000)
    fetchers = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(60) == LEFT
    assert psutil.wait_procs(fetchers, timeout=30)[1] == []


def test_a_killed_fetcher_ends_the_training(tmp_path: Path) -> None:
    """As where a DataLoader's worker is out of memory; a restart then feeds what is left, each sample once."""
    process = begin(tmp_path, EPOCHS=8, PACE=0.01)
    fetchers = psutil.Process(process.pid).children(recursive=True)
    fetchers[0].kill()
    assert process.wait(60) == 1
    assert psutil.wait_procs(fetchers, timeout=30)[1] == []
    assert begin(tmp_path, EPOCHS=8).wait(60) == 0
    files = {path.name: path.read_text().splitlines() for path in (tmp_path / "ledger").glob("*.jsonl")}
    audit = ledger.audit(files, json.loads((tmp_path / "final" / "manifest.json").read_text()))
    assert (audit.problems, audit.duplicates, audit.missing) == ((), 0, 0)
