# SPDX-License-Identifier: Apache-2.0
"""What becomes of the model that a training leaves, and of its figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.schemas.names import PROGRESS
from kfp_volcano.schemas.records import Progress, dump
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher import steps
from kfp_volcano.volcano.launcher.collect import final_model
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Unmounted(EmbeddedCluster):
    """A cluster whose volumes this process does not mount."""

    def volume(self, namespace: str, claim: str) -> None:  # type: ignore[override]
        return None


@pytest.fixture(params=[EmbeddedCluster, Unmounted])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    cluster = request.param(tmp_path / "cluster")
    monkeypatch.setattr(steps, "connect", lambda **_: cluster)
    yield cluster
    cluster.shutdown(grace_s=0)


def job(cluster: EmbeddedCluster, strategy: str, **annotations: str) -> Any:
    """A Job whose workers save to claim `files`."""
    spec = training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "digits", "namespace": "ml", "annotations": annotations},
            "spec": {
                "framework": "pytorch",
                "image": "any",
                "command": ["sleep", "600"],
                "queue": "research",
                "roles": {"worker": {"replicas": 1, "resources": {"cpu": 1}}},
                "elasticity": {"strategy": strategy, "batch": {"global": 8}},
                "checkpoint": {"volume": "files"},
            },
        }
    )
    made = submit(cluster, spec, run_id="run", step="submit", now=0.0)
    if annotations:
        made["metadata"]["annotations"] |= annotations
    return made


def leave(cluster: EmbeddedCluster, name: str, size: int) -> None:
    """A final model of that many bytes beside its manifest."""
    final = EmbeddedCluster.volume(cluster, "ml", "files") / name / "final"
    (final / "parts").mkdir(parents=True)
    (final / "parts" / "model.pt").write_bytes(b"x" * size)
    (final / "manifest.json").write_text("{}")


@pytest.mark.parametrize("cluster", [EmbeddedCluster], indirect=True)
@pytest.mark.parametrize("copied", [True, False])
def test_a_small_model_is_copied_and_a_large_one_stays(cluster: Any, tmp_path: Path, copied: bool) -> None:
    """Either way the artifact says which claim has it, and where."""
    name = job(cluster, "live")["metadata"]["name"]
    leave(cluster, name, 100)
    figures = steps.collect_step(
        job=f"ml/{name}", run_id="run", model=str(tmp_path / "model"), copy_up_to=102 if copied else 101
    )
    lies = EmbeddedCluster.volume(cluster, "ml", "files") / name / "final"
    assert (tmp_path / "model" / "parts" / "model.pt").exists() is copied
    assert (tmp_path / "model" / "location.json").exists() is not copied
    assert figures.metadata == {
        "job": f"ml/{name}",
        "run_id": "run",
        "namespace": "ml",
        "claim": "files",
        "folder": f"{name}/final",
        "path": str(lies),
        "files": "manifest.json, parts/model.pt",
        "size": 102,
    }


@pytest.mark.parametrize("cluster", [Unmounted], indirect=True)
def test_without_the_volume_the_artifact_says_where_the_model_is_and_progress_gives_the_figures(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step says what it could not do, and how it could."""
    made = job(cluster, "live")
    name = made["metadata"]["name"]
    leave(cluster, name, 100)
    progress = Progress(
        step=9, total_steps=9, samples=72, epoch=1, loss=0.5, throughput=10.0, workers=1, batch=8, lr=0.1, at=1.0,
        metrics={"accuracy": 0.75},
    )  # fmt: skip
    made["metadata"]["annotations"][PROGRESS] = dump(progress)
    monkeypatch.setattr("kfp_volcano.volcano.launcher.reference.JobRef.read", lambda *_: made)
    figures = steps.collect_step(job=f"ml/{name}", run_id="run", model=str(tmp_path / "model"), copy_up_to=1000)
    location = json.loads((tmp_path / "model" / "location.json").read_text())
    assert location["path"] == figures.metadata["path"] == f"/kfp-volcano/volume/{name}/final"
    assert (figures.metrics["accuracy"], figures.metrics["samples"], figures.metrics["loss"]) == (0.75, 72.0, 0.5)
    assert json.loads(figures.json)["samples_seen"] is None
    assert 'volume="files"' in capsys.readouterr().out


def test_other_strategies_need_not_leave_a_model(cluster: Any) -> None:
    """Nor is one supposed where nobody can look."""
    assert final_model(cluster, job(cluster, "fixed")) is None
