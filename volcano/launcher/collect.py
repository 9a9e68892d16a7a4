"""Take in what a training produced: the audit of its samples, its figures, its model."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.ledger import audit
from kfp_volcano.errors import JobFailedError, UnavailableError
from kfp_volcano.volcano.launcher.folder import final_manifest, job_folder, ledger_lines, timeline
from kfp_volcano.volcano.launcher.result import build_result

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["copy_model", "gather", "has_model"]


def gather(cluster: Cluster, job: Manifest, *, started_at: float, ended_at: float) -> dict[str, Any]:
    """The run's figures in the form of `schemas/json/result.v1.schema.json`, from the ledgers and the Job's record.

    Works for a failed run too: what could not be computed is null, with a note that says why.
    """
    folder = job_folder(cluster, job)
    if folder is None or not folder.exists():
        return build_result(audit=None, job=job, timeline=[], manifest=None, started_at=started_at, ended_at=ended_at)
    manifest = final_manifest(folder)
    lines = ledger_lines(folder)
    return build_result(
        audit=audit(lines, manifest) if lines and manifest else None,
        job=job,
        timeline=timeline(folder),
        manifest=manifest,
        started_at=started_at,
        ended_at=ended_at,
    )


def has_model(cluster: Cluster, job: Manifest) -> bool:
    """Whether the training has left a final model where this process can see it."""
    folder = job_folder(cluster, job)
    return folder is not None and final_manifest(folder) is not None


def copy_model(cluster: Cluster, job: Manifest, destination: Path) -> list[str]:
    """Copy the final model's files to `destination`; returns their names.

    Raises:
        JobFailedError: The training wrote no final model.
        UnavailableError: The checkpoint volume is not mounted here.
    """
    folder = job_folder(cluster, job)
    if folder is None:
        raise UnavailableError("the Job's checkpoint volume is not mounted in this step: its model cannot be read here")
    final = folder / "final"
    if not (final / "manifest.json").exists():
        raise JobFailedError(f"the training wrote no final model to {final}")
    shutil.copytree(final, destination, dirs_exist_ok=True)
    return sorted(path.name for path in final.iterdir())
