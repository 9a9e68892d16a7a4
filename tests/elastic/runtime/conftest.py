# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes that train the same model on the same data."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kfp_volcano.schemas import names
from live.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from kfp_volcano.elastic import ledger
    from live.network import Network

SCRIPT = Path(__file__).with_name("worker.py")


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Makes Jobs whose coordinator runs; none of their processes outlives the test."""
    jobs: list[Job] = []

    def make(
        *,
        epochs: int = 12,
        pace: float = 0.01,
        script: Path = SCRIPT,
        network: Network | None = None,
        **settings: Any,
    ) -> Job:
        folder = tmp_path / f"job-{len(jobs)}"
        given = {"EPOCHS": epochs, "PACE": pace}
        jobs.append(Job(folder, script, given, settings={"checkpoint_every_s": 0.5, **settings}, network=network))
        jobs[-1].start_coordinator()
        return jobs[-1]

    yield make
    for job in jobs:
        job.end()


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], ledger.Audit]:
    """The same training by one worker outside any Job: what every other way must equal."""

    def train(epochs: int) -> ledger.Audit:
        job = Job(tmp_path / "alone", SCRIPT, {})
        monkeypatch.setenv(names.ENV_JOB_DIR, str(job.folder))
        runpy.run_path(str(SCRIPT), {"EPOCHS": epochs})
        return job.audit()

    return train
