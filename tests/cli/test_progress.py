# SPDX-License-Identifier: Apache-2.0
"""How far simulations are goes to standard error, and nothing but the command's own words to standard output."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from kfp_volcano.cli.progress import Lines
from kfp_volcano.elastic.simulator.simulate import POLICIES, simulate
from outcomes import scenario

TRACE = "job_id,submission_time,duration,num_gpu\n" + "".join(f"j{n},{60 * n},900,{1 + n % 4}\n" for n in range(12))
NOISY = """
import ctypes, scipy.optimize
solve = scipy.optimize.milp
def milp(*arguments, **options):
    ctypes.CDLL(None).puts(b"solver: a line of its own")
    return solve(*arguments, **options)
scipy.optimize.milp = milp
from kfp_volcano.cli import main
main()
"""


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.mark.parametrize("policy", POLICIES)
def test_whoever_watches_hears_of_all_jobs_and_changes_nothing(policy: str) -> None:
    """Time and jobs that have ended only grow."""
    heard: list[tuple[float, int]] = []
    given = scenario(10, gap_s=50.0)
    watched = simulate(given, policy, watch=lambda at, ended: heard.append((at, ended)))
    assert watched == simulate(given, policy)
    assert heard == sorted(heard)
    assert [at for at, _ in heard] == sorted(at for at, _ in heard)
    assert heard[-1][1] == sum(job.ended_at is not None for job in watched.jobs) == 10


def test_lines_come_now_and_then_with_what_is_left() -> None:
    """Not more often than every ten seconds, anew for each simulation."""
    told: list[str] = []
    clock = [0.0]
    lines = Lines(lambda: clock[0], told.append)
    for second in range(41):
        clock[0] = float(second)
        lines.clock("goodput", 100.0 * second, second, 40)
    assert len(told) == 3
    assert told[0] == "goodput: 10 of 40 jobs have ended by 16 min 40 s of the scenario, some 30 s to go"
    clock[0] = 45.0
    lines.clock("goodput", 0.0, 0, 40)  # another simulation of the same policy
    clock[0] = 54.0
    lines.clock("goodput", 5.0, 0, 40)
    assert len(told) == 3
    clock[0] = 55.0
    lines.clock("goodput", 9.0, 0, 40)
    assert told[3] == "goodput: 0 of 40 jobs have ended by 9.0 s of the scenario"


def test_what_a_solver_prints_does_not_get_between_the_figures(trace: Path) -> None:
    """It is C code that prints, past Python's own standard output and into a buffer of its own."""
    command = [sys.executable, "-c", NOISY, "simulate", trace, "--nodes", "2x4", "--policy", "sia", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["policies"]["sia"]["jobs"] == 12
    assert "a line of its own" in found.stderr


def test_a_terminal_shows_jobs_and_time_while_figures_go_elsewhere(trace: Path) -> None:
    """Standard error is a terminal here, standard output a pipe."""
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "kfp_volcano",
        "simulate",
        trace,
        "--nodes",
        "2x4",
        "--policy",
        "fifo",
        "--json",
    ]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        assert process.stdout is not None
        figures = json.loads(process.stdout.read())
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0
    assert figures["policies"]["fifo"]["not_ended"] == 0
    assert b"12/12" in shown
    assert b"jobs ended" in shown
