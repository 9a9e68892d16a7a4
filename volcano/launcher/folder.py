# SPDX-License-Identifier: Apache-2.0
"""The Job's folder on its checkpoint volume: ledgers, the queue's timeline, the final model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.names import SPEC
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import annotation

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["FIRST", "final_manifest", "job_folder", "ledger_lines", "report_folder", "timeline", "training_job_of"]

FIRST = ".first"
"""The file in a run's output folder that names the Job whose report is there."""


def training_job_of(job: Manifest) -> TrainingJob | None:
    """The TrainingJob a Job was rendered from; None for a Job that is not ours."""
    text = annotation(job, SPEC)
    return training_job(json.loads(text)) if text else None


def job_folder(cluster: Cluster, job: Manifest) -> Path | None:
    """Where this process sees the Job's folder; None where the Job has no checkpoint volume or it is not mounted."""
    spec = training_job_of(job)
    if spec is None or spec.checkpoint is None:
        return None
    volume = cluster.volume(job["metadata"]["namespace"], spec.checkpoint.volume)
    return volume / job["metadata"]["name"] if volume else None


def ledger_lines(folder: Path) -> dict[str, list[str]]:
    """The lines of each worker process's ledger, by file name."""
    return {
        path.name: path.read_text(encoding="utf-8").splitlines() for path in sorted((folder / "ledger").glob("*.jsonl"))
    }


def timeline(folder: Path) -> list[dict[str, Any]]:
    """What the autoscaler noted of the queue, oldest first; lines torn by a kill are left out."""
    path = folder / "queue.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    entries = [entry for entry in map(_entry, lines) if entry is not None]
    return sorted(entries, key=lambda entry: float(entry.get("time", 0.0)))


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return entry


def final_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the final model, None while there is none."""
    path = folder / "final" / "manifest.json"
    if not path.exists():
        return None
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return manifest


def report_folder(out: Path, job: str) -> Path:
    """Where in a run's output folder a Job's report goes: the folder itself for the first one, one below for others."""
    mark = out / FIRST
    try:
        with mark.open("x", encoding="utf-8") as file:
            file.write(job)
    except FileExistsError:
        return out if mark.read_text(encoding="utf-8") == job else out / job
    return out
