# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong at any moment: one Job, nothing left behind, every line, the right end, one resize at a time.

Each run is a DAG of real processes, killed by SIGKILL and retried as KFP does, beside an autoscaler that is killed too,
on an API server that refuses, resets, stalls and forgets, all in virtual time. `python -m simulation SEED 1`, with
`tests/harness` and `src` on the path, tells the story of a run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"
RUNS = 500 if FULL else 50
AT_ONCE = 2
OFTEN = 20
"""A call site that is met so often in all runs must have had a fault."""


@pytest.fixture(scope="module")
def runs(root: Path) -> list[dict[str, Any]]:
    """All runs, each with what did not hold."""
    env = {**os.environ, "PYTHONPATH": f"{root / 'tests' / 'harness'}{os.pathsep}{root / 'src'}"}
    command = [sys.executable, "-m", "simulation"]
    started = [
        subprocess.Popen(
            [*command, str(first), str(RUNS // AT_ONCE), str(AT_ONCE)],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for first in range(AT_ONCE)
    ]  # fmt: skip
    found = []
    for process in started:
        out, errors = process.communicate()
        assert process.returncode == 0, errors
        found += [json.loads(line) for line in out.splitlines()]
    return found


@pytest.mark.timeout(1800)
def test_nothing_is_orphaned_doubled_or_lost(runs: list[dict[str, Any]]) -> None:
    """Every law holds in every run."""
    assert len(runs) == RUNS
    broken = [run for run in runs if run["broken"]]
    assert not broken, json.dumps(broken[:3], indent=1)


def test_faults_were_everywhere(runs: list[dict[str, Any]]) -> None:
    """Runs end well and badly, are killed, cut off and resized; and every call that is made often had a fault."""
    assert {run["state"] for run in runs} == {"Succeeded", "Failed"}
    assert sum(run["killed"] for run in runs) >= RUNS / 2
    assert sum(run["stalled"] for run in runs) >= RUNS / 20
    assert sum(run["resized"] for run in runs) >= RUNS / 2
    met: Counter[str] = Counter()
    hit: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for run in runs:
        met.update(run["met"])
        for site, kind, times in run["hit"]:
            hit[site] += times
            kinds[kind] += times
    often = {site for site, times in met.items() if times >= OFTEN * (1 if FULL else 5)} - {"autoscaler print"}
    assert often <= set(hit), sorted(often - set(hit))
    wanted = {"429", "500", "503", "504", "409", "410", "refused", "reset", "reset after", "stalled", "stalled after"}
    assert wanted | {"cut", "silent", "kill", "kill after"} <= set(kinds), kinds
