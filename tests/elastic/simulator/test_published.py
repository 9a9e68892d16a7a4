"""Completion times that were published with Pollux (OSDI'21), job by job and to the second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfp_volcano.elastic.simulator.outcome import Outcome
from kfp_volcano.elastic.simulator.reading.trace import read_trace
from kfp_volcano.elastic.simulator.simulate import simulate

FOLDER = "data/pollux-osdi21/simulator"
FOLDERS = {"1.0": "workloads", "0.5": "workloads-0.5", "1.5": "workloads-1.5", "2.0": "workloads-2.0"}


@pytest.fixture
def artifact(shared: Path) -> Path:
    """The published artifact's simulator."""
    folder = shared / FOLDER
    if not folder.is_dir():
        pytest.skip(f"the public data is not there: {folder}")
    return folder


def published(artifact: Path, policy: str, load: str, workload: str) -> dict[str, int]:
    """Completion times in seconds, by job."""
    found: dict[str, int] = json.loads((artifact / f"results-jobload/{policy}-{load}/summary.json").read_text())[
        "jcts"
    ][workload]
    return found


def by_job(outcome: Outcome) -> dict[str, float | None]:
    """The same of an outcome."""
    return {job.name: job.jct for job in outcome.jobs}


@pytest.mark.parametrize("workload", range(1, 9))
def test_tiresias_is_what_was_published(artifact: Path, workload: int) -> None:
    """Each job of each workload that is there."""
    path = artifact / f"workloads/workload-{workload}.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not among the public data")
    outcome = simulate(read_trace(path), "tiresias")
    assert by_job(outcome) == published(artifact, "tiresias", "1.0", path.stem)


@pytest.mark.parametrize("load", ["1.0", "0.5"])
def test_optimus_is_what_was_published(artifact: Path, load: str) -> None:
    """Each job of workload 6, at the load of the paper and at half of it."""
    outcome = simulate(read_trace(artifact / FOLDERS[load] / "workload-6.csv"), "optimus")
    assert by_job(outcome) == published(artifact, "optimus", load, "workload-6")


def test_the_averages_are_those_of_the_paper_s_table(artifact: Path) -> None:
    """3469.69375 s under Tiresias."""
    outcome = simulate(read_trace(artifact / "workloads/workload-6.csv"), "tiresias")
    jcts = [job.jct for job in outcome.jobs if job.jct is not None]
    assert sum(jcts) / len(outcome.jobs) == 3469.69375
