# SPDX-License-Identifier: Apache-2.0
"""End a run: its report, and nothing left behind."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.moving import release_expired
from kfp_volcano.errors import ConflictError, NotFoundError
from kfp_volcano.volcano.launcher.collect import gather
from kfp_volcano.volcano.launcher.folder import job_folder
from kfp_volcano.volcano.launcher.measured import keep_advice
from kfp_volcano.volcano.launcher.report import write_report
from kfp_volcano.volcano.manifests.status import JobState, job_state

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["clean_up", "conclude"]


def conclude(
    cluster: Cluster, job: Manifest, *, out: Path, started_at: float, now: float, with_ledgers: bool
) -> dict[str, Any]:
    """Write report and figures to `out`, and remove a Job that has not succeeded, whatever becomes of the report.

    A Job that trains on after its run has failed or was terminated is nobody's: it goes. One that succeeded stays for
    its time to live. With `with_ledgers` what the figures were computed from is put beside them.

    Returns:
        The run's figures.
    """
    try:
        result = gather(cluster, job, started_at=started_at, ended_at=now)
        if not job_state(job).final:
            result["reason"] = "its run ended first"
        write_report(out, result)
        folder = job_folder(cluster, job) if with_ledgers else None
        if folder is not None:
            _keep(folder, out)
        keep_advice(cluster, job)
    finally:
        clean_up(cluster, job)
        release_expired(cluster, now)
    return result


def _keep(folder: Path, out: Path) -> None:
    """Leave what the figures were computed from beside them."""
    for part in ("ledger", "events"):
        if (folder / part).exists():
            shutil.copytree(folder / part, out / part, dirs_exist_ok=True)
    if (folder / "queue.jsonl").exists():
        shutil.copy(folder / "queue.jsonl", out / "queue.jsonl")


def clean_up(cluster: Cluster, job: Manifest) -> bool:
    """Delete the Job unless it succeeded; whether it was deleted."""
    if job_state(job) is JobState.SUCCEEDED:
        return False
    try:
        metadata = job["metadata"]
        cluster.delete("Job", metadata["name"], metadata["namespace"], uid=metadata["uid"])
    except (NotFoundError, ConflictError):
        return False
    return True
