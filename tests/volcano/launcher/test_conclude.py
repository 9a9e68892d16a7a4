# SPDX-License-Identifier: Apache-2.0
"""What is left of a Job when its run has ended: a report, and nothing that runs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import NotFoundError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher import steps
from kfp_volcano.volcano.launcher.conclude import conclude
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.report import summary_markdown
from kfp_volcano.volcano.launcher.submit import submit
from kfp_volcano.volcano.manifests.status import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    cluster = EmbeddedCluster(tmp_path / "cluster")
    yield cluster
    cluster.shutdown(grace_s=0)


@pytest.fixture
def job(cluster: EmbeddedCluster) -> Any:
    """A Job that trains on."""
    spec = {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits", "namespace": "ml"},
        "spec": {
            "framework": "custom",
            "image": "any",
            "command": ["sleep", "600"],
            "queue": "research",
            "roles": {"worker": {"replicas": 1, "resources": {"cpu": 1}}},
            "checkpoint": {"volume": "files"},
        },
    }
    return submit(cluster, training_job(spec), run_id="run", step="submit", now=0.0)


def test_a_job_that_trains_on_after_its_run_goes_and_the_report_says_so(
    cluster: EmbeddedCluster, job: Any, tmp_path: Path
) -> None:
    """As after Terminate: it is nobody's any more."""
    result = conclude(cluster, job, out=tmp_path / "out", started_at=0.0, now=60.0, with_ledgers=False)
    with pytest.raises(NotFoundError):
        cluster.get("Job", job["metadata"]["name"], "ml")
    assert "(its run ended first)" in summary_markdown(result)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["reason"] == "its run ended first"


def test_a_report_that_cannot_be_written_keeps_no_job_alive(cluster: EmbeddedCluster, job: Any, tmp_path: Path) -> None:
    """The clean-up is what must happen."""
    name = job["metadata"]["name"]
    ledger = cluster.volume("ml", "files") / name / "ledger"
    ledger.mkdir(parents=True)
    (ledger / "torn.jsonl").write_bytes(b"\xff\xfe not text")
    with pytest.raises(UnicodeDecodeError):
        conclude(cluster, job, out=tmp_path / "out", started_at=0.0, now=60.0, with_ledgers=False)
    with pytest.raises(NotFoundError):
        cluster.get("Job", name, "ml")


@pytest.mark.parametrize("phase", ["Completed", "Running"])
def test_a_report_that_cannot_be_made_fails_only_a_run_whose_job_has_not_succeeded(
    cluster: EmbeddedCluster, job: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phase: str
) -> None:
    """A Job that succeeded fails no step; what is missing is told where the report would be."""
    ref = JobRef.of(job)

    def torn(*_args: Any, **_options: Any) -> None:
        raise OSError("no space left")

    def as_it_ended(_: Any) -> JobState:
        return JobState.SUCCEEDED if phase == "Completed" else JobState.RUNNING

    monkeypatch.setattr(steps, "connect", lambda **_: cluster)
    monkeypatch.setattr(steps, "job_state", as_it_ended)
    monkeypatch.setattr("kfp_volcano.volcano.launcher.conclude.write_report", torn)
    page, summary = tmp_path / "report.html", tmp_path / "summary.md"
    with nullcontext() if phase == "Completed" else pytest.raises(OSError, match="no space"):
        steps.conclude_step(job=str(ref), report=str(page), summary=str(summary))
    assert page.exists() is (phase == "Completed")
    if page.exists():
        assert "has succeeded" in page.read_text()
        assert "no space left" in summary.read_text()
