# SPDX-License-Identifier: Apache-2.0
"""Take in what a training produced: the audit of its samples, its figures, its model."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.ledger import audit
from kfp_volcano.errors import JobFailedError
from kfp_volcano.schemas.names import MOUNT_PATH
from kfp_volcano.volcano.launcher.folder import final_manifest, job_folder, ledger_lines, timeline, training_job_of
from kfp_volcano.volcano.launcher.result import build_result
from kfp_volcano.volcano.launcher.trace import as_json, event_lines, trace

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["FINAL", "FinalModel", "final_model", "gather"]

FINAL = "final"
"""The folder of the final model in the Job's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalModel:
    """The model that a training left on its volume."""

    namespace: str
    claim: str
    folder: str
    """Its folder on the claim: `<job>/final`."""
    files: tuple[str, ...] = ()
    """Unknown, and so empty, where the claim is not mounted here."""
    size: int = 0
    """Of all files, in bytes."""
    here: Path | None = None
    """The folder as this process sees it."""

    @property
    def metadata(self) -> dict[str, Any]:
        """What the artifact says of itself; `path` is for whoever mounts the claim where workers do.

        Texts and numbers alone: a list comes back from a backend's store as `{"list": …}`.
        """
        return {
            "namespace": self.namespace,
            "claim": self.claim,
            "folder": self.folder,
            "path": str(self.here or Path(MOUNT_PATH) / self.folder),
            "files": ", ".join(self.files),
            "size": self.size,
        }

    def copy(self, destination: Path) -> None:
        """Copy the files, which are mounted here."""
        assert self.here is not None  # noqa: S101  # whoever copies has looked
        shutil.copytree(self.here, destination, dirs_exist_ok=True)

    def point(self, destination: Path) -> None:
        """Write where the files are instead: `location.json`.

        An artifact has to have a file in KFP's store. Its launcher downloads what later steps are given, and fails on
        a URI of anything else (backend/src/v2/component/launcher_v2.go, fetchNonDefaultBuckets).
        """
        destination.mkdir(parents=True, exist_ok=True)
        (destination / "location.json").write_text(json.dumps(self.metadata, indent=2), encoding="utf-8")


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
        trace=as_json(trace(job["metadata"].get("annotations") or {}, event_lines(folder), lines)),
    )


def final_model(cluster: Cluster, job: Manifest) -> FinalModel | None:
    """The model of a Job that has ended well; None where it leaves none.

    A volume that is not mounted here is taken to hold the model that the live runtime always writes.

    Raises:
        JobFailedError: The live runtime wrote no final model.
    """
    spec = training_job_of(job)
    if spec is None or spec.checkpoint is None:
        return None
    live = spec.elasticity.strategy == "live"
    name = job["metadata"]["name"]
    model = FinalModel(namespace=spec.namespace, claim=spec.checkpoint.volume, folder=f"{name}/{FINAL}")
    folder = job_folder(cluster, job)
    if folder is None:
        return model if live else None
    final = folder / FINAL
    if final_manifest(folder) is None:
        if live:
            raise JobFailedError(f"the training wrote no final model to {final}")
        return None
    files = sorted(path for path in final.rglob("*") if path.is_file())
    return replace(
        model,
        files=tuple(str(path.relative_to(final)) for path in files),
        size=sum(path.stat().st_size for path in files),
        here=final,
    )
