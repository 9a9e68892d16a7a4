# SPDX-License-Identifier: Apache-2.0
"""Whatever befalls replicas of the autoscaler, they harm nobody; and once it is over, queues come to rest.

Each run is a random cluster with random people, Jobs and policies, and two real Fleets that are killed, cut off and
stalled, whose clocks jump, on an API server that refuses, resets, stalls and forgets, all in virtual time.
`python -m storms SEED 1`, with `tests/harness` and `src` on the path, tells the story of a run.
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
RUNS = 200 if FULL else 20
AT_ONCE = 2


@pytest.fixture(scope="module")
def runs(root: Path) -> list[dict[str, Any]]:
    """All runs, each with what did not hold."""
    paths = os.pathsep.join([str(root / "tests" / "harness"), str(root / "src")])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "storms"]
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
def test_no_law_is_broken_and_all_comes_to_rest(runs: list[dict[str, Any]]) -> None:
    """Every law holds at every moment of every run; of one that breaks any, the seed and its end are told."""
    assert len(runs) == RUNS
    broken = [run for run in runs if run["broken"]]
    assert not broken, "\n\n".join("\n".join([f"seed={run['seed']}", *run["story"]]) for run in broken[:3])


def test_faults_and_people_were_everywhere(runs: list[dict[str, Any]]) -> None:
    """Every kind of fault and of deed happened, and Jobs were resized all the same."""
    happened: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for run in runs:
        happened.update(run["happened"])
        for _, kind, times in run["hit"]:
            faults[kind] += times
    wanted = {"429", "500", "503", "504", "409", "410", "refused", "reset", "reset after", "stalled", "stalled after"}
    assert wanted | {"cut", "silent", "kill", "kill after"} <= set(faults), faults
    wanted = {"outage", "partition", "clock jump", "stall", "kill", "node lost", "half a pod's status", "nonsense"}
    assert wanted | {"no PodGroup status", "fleet ended", "lease taken", "hold", "override"} <= set(happened), happened
    assert sum(run["killed"] for run in runs) >= RUNS
    assert sum(run["written"] for run in runs) >= 10 * RUNS
    assert {"decided QueueIdle", "decided GangPending", "decided Unplaced"} <= set(happened), happened
