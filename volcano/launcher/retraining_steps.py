# SPDX-License-Identifier: Apache-2.0
"""The bodies of the steps around a retraining: is there new data, take the model in, deploy it or not."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.names import MOUNT_PATH
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.launcher.collect import FINAL
from kfp_volcano.volcano.launcher.data_manifest import DataManifest
from kfp_volcano.volcano.launcher.reference import JobRef, effective_run_id
from kfp_volcano.volcano.launcher.registry import Registry
from kfp_volcano.volcano.launcher.step_record import failing_cleanly, say

__all__ = ["Places", "Staged", "Verdict", "check_step", "promote_step", "stage_step"]

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things are: a volume claim, and folders on it."""

    volume: str
    models: str
    data: str = ""


@dataclass(frozen=True, slots=True)
class Staged:
    """Where the models to compare are, for a program that has the volume at `MOUNT_PATH`."""

    candidate: str
    deployed: str
    """Empty where nothing is deployed."""
    evaluation: str
    """The file in which the comparison is to be."""
    against: str
    """The version that is deployed; empty for none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a candidate."""

    promoted: bool
    metric: str
    candidate: float
    deployed: float | None


def check_step(places: Places, *, run_id: str, force: bool, report: str) -> str:
    """Compare the data with what the last model was trained with; returns `train` or `keep`."""
    with failing_cleanly("check-data"):
        volume, registry, version = _opened(places, run_id)
        known = registry.data()
        manifest = DataManifest.of(_below(volume, places.data, "data"), known)
        if not manifest.files:
            raise SpecError(f"there are no files in {places.data} on claim {places.volume}", source="data")
        difference = manifest.since(known)
        train = force or bool(difference)
        if train:
            registry.begin(version, manifest)
        said = f"{len(manifest.files)} files, {difference}: {'training' if train else 'nothing to train'}"
        say(said)
        names = [*difference.added, *difference.changed, *difference.removed]
        listed = "".join(f"- `{name}`\n" for name in names[:_SHOWN])
        more = f"- … and {len(names) - _SHOWN} more\n" if len(names) > _SHOWN else ""
        Path(report).write_text(f"### Data\n\n{said}\n\n{listed}{more}", encoding="utf-8")
        return "train" if train else "keep"


def stage_step(places: Places, *, run_id: str, result: str) -> Staged:
    """Take the model of a training into the registry, where it lies on the same claim.

    By path and not as an artifact: KFP's launcher refuses to start a step with an artifact that is in no store.
    """
    with failing_cleanly("stage-model"):
        volume, registry, version = _opened(places, run_id)
        registry.stage(version, _trained(volume, result) / FINAL)
        deployed = registry.deployed
        base = f"{MOUNT_PATH}/{places.models}"
        say(f"version {version} is to be compared with {deployed or 'nothing: none is deployed'}")
        return Staged(
            candidate=f"{base}/versions/{version}/model",
            deployed=f"{base}/versions/{deployed}/model" if deployed and deployed != version else "",
            evaluation=f"{base}/versions/{version}/evaluation.json",
            against=deployed or "",
        )


def promote_step(
    places: Places,
    *,
    run_id: str,
    against: str,
    least_gain: float,
    keep: int,
    result: str,
    report: str,
) -> Verdict:
    """Deploy the candidate if it is better, and remove what is no longer needed."""
    with failing_cleanly("promote-model"):
        volume, registry, version = _opened(places, run_id)
        now = datetime.now(timezone.utc)
        at = now.isoformat(timespec="seconds")
        promoted, found = registry.decide(version, against=against or None, least_gain=least_gain, at=at)
        removed = registry.prune(keep, now=now.timestamp())
        shutil.rmtree(_trained(volume, result), ignore_errors=True)  # its model is in the registry
        before = "nothing deployed" if found.deployed is None else f"{found.deployed:.4f} deployed"
        outcome = "promoted" if promoted else "kept what is there"
        said = f"{found.metric}: {found.candidate:.4f} against {before}: {outcome}"
        say(said + (f"; removed {', '.join(removed)}" if removed else ""))
        Path(report).write_text(f"### Model\n\n{said}\n\nVersion `{version}`.\n", encoding="utf-8")
        return Verdict(promoted, found.metric, found.candidate, found.deployed)


def _opened(places: Places, run_id: str) -> tuple[Path, Registry, str]:
    """The volume, the registry on it, and the version that is this run's."""
    volume = _volume(places.volume)
    return volume, Registry(_below(volume, places.models, "models")), effective_run_id(run_id)


def _volume(claim: str) -> Path:
    cluster = connect()
    pod = cluster.own_pod()
    namespace = pod["metadata"]["namespace"] if pod else "default"
    found = cluster.volume(namespace, claim)
    if found is None:
        raise SpecError(f"the claim {claim} is not mounted in this step, which is in {namespace}", source="volume")
    return found


def _trained(volume: Path, result: str) -> Path:
    """The folder that a training has on the volume; there its ledgers are, its checkpoints and its model."""
    return volume / JobRef.parse(str(json.loads(result)["job"])).name


def _below(volume: Path, folder: str, what: str) -> Path:
    """A folder of the volume. Raises SpecError for one outside of it."""
    path = (volume / folder).resolve()
    if not folder or path == volume.resolve() or not path.is_relative_to(volume.resolve()):
        raise SpecError(f"{folder!r} is no folder on the volume", source=what)
    return path
