# SPDX-License-Identifier: Apache-2.0
"""Models in a folder of a volume: versions, how each was judged, and which one is deployed.

::

    promoted.json                which version is deployed: replaced at once, or not at all
    versions/<version>/
        data.json                the data that it was trained with (`DataManifest`)
        model/                   its files
        evaluation.json          how it and the one deployed then did: {metric, candidate, deployed}
        outcome.json             what came of it: written last

Whoever serves the model reads `promoted.json`, whose `model` is the folder beside it.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ConflictError, JobFailedError
from kfp_volcano.volcano.launcher.data_manifest import DataManifest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Evaluation", "Registry"]

_ABANDONED_S = 7 * 86400.0
_OUTCOME, _DATA, _EVALUATION = "outcome.json", "data.json", "evaluation.json"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found, on the same data for both: larger is better."""

    metric: str
    candidate: float
    deployed: float | None
    """None where nothing was deployed."""

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """What the evaluating program wrote. Raises JobFailedError where that is nothing to go by."""
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            deployed = value.get("deployed")
            found = cls(str(value["metric"]), float(value["candidate"]), None if deployed is None else float(deployed))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise JobFailedError(
                f"the evaluation left no {path.name} of the form "
                f'{{"metric": "accuracy", "candidate": 0.9, "deployed": 0.8 or null}}: {error}'
            ) from error
        if found.candidate != found.candidate or found.deployed != found.deployed:
            raise JobFailedError(f"the evaluation's {found.metric} is not a number")
        return found

    def better(self, least_gain: float) -> bool:
        """Whether the candidate is to be deployed."""
        return self.deployed is None or self.candidate >= self.deployed + least_gain


class Registry:
    """The models in a folder. One writer at a time: a schedule starts no second run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def version(self, name: str) -> Path:
        """The folder of a version."""
        return self.folder / "versions" / name

    @property
    def deployed(self) -> str | None:
        """The version that is deployed. Raises ConflictError where that cannot be read."""
        try:
            return str(json.loads((self.folder / "promoted.json").read_text(encoding="utf-8"))["version"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConflictError(f"{self.folder / 'promoted.json'} cannot be read: {error}") from error

    def judged(self) -> list[str]:
        """The versions something came of, newest first."""
        found = list((self.folder / "versions").glob(f"*/{_OUTCOME}"))
        found.sort(key=lambda path: (path.stat().st_mtime_ns, path.parent.name), reverse=True)
        return [path.parent.name for path in found]

    def data(self) -> DataManifest | None:
        """The data of the last version that was judged, deployed or not: to train with it again brings nothing new."""
        return next((DataManifest.read(self.version(name) / _DATA) for name in self.judged()), None)

    def begin(self, version: str, data: DataManifest) -> None:
        """A version is going to be trained with this data."""
        _write(self.version(version) / _DATA, data.plain)

    def stage(self, version: str, model: Path) -> Path:
        """Take a model's files in, without copying them where that can be; the same again changes nothing.

        Raises JobFailedError where there is no model.
        """
        target = self.version(version) / "model"
        if not target.exists():
            if not model.is_dir():
                raise JobFailedError(f"the training left no model in {model}")
            draft = target.with_name(".model")
            shutil.rmtree(draft, ignore_errors=True)
            shutil.copytree(model, draft, copy_function=_link_or_copy)
            draft.rename(target)
        return target

    def evaluation(self, version: str) -> Evaluation:
        """How a version did. Raises JobFailedError where its evaluation says nothing of use."""
        return Evaluation.read(self.version(version) / _EVALUATION)

    def decide(self, version: str, *, against: str | None, least_gain: float, at: str) -> tuple[bool, Evaluation]:
        """Deploy a version or keep the one that is, by its evaluation; said again, it comes to the same.

        Args:
            version: The candidate.
            against: The version that was deployed when they were compared.
            least_gain: By how much the candidate has to be better.
            at: The time, for the record.

        Raises ConflictError where another version has been deployed since.
        """
        evaluation = self.evaluation(version)
        deployed = self.deployed
        if deployed not in (against, version):
            raise ConflictError(
                f"compared with {against or 'nothing'}, but {deployed or 'nothing'} is deployed by now: run again"
            )
        promoted = deployed == version or evaluation.better(least_gain)
        said = {"metric": evaluation.metric, "candidate": evaluation.candidate, "deployed": evaluation.deployed}
        manifest = DataManifest.read(self.version(version) / _DATA)
        record = {"version": version, "at": at, "data": manifest.digest if manifest else None, "evaluation": said}
        if promoted:
            _write(self.folder / "promoted.json", {**record, "model": f"versions/{version}/model"})
        _write(self.version(version) / _OUTCOME, {**record, "outcome": "promoted" if promoted else "kept"})
        return promoted, evaluation

    def prune(self, keep: int, *, now: float) -> list[str]:
        """Remove all but the `keep` newest judged versions, and what runs that failed began a week ago.

        Never the deployed one. Returns their names.
        """
        judged = self.judged()
        began = {path.parent.name: path.stat().st_mtime for path in (self.folder / "versions").glob(f"*/{_DATA}")}
        left = [name for name, at in began.items() if name not in judged and now - at > _ABANDONED_S]
        old = [name for name in (*judged[keep:], *sorted(left)) if name != self.deployed]
        for name in old:
            shutil.rmtree(self.version(name), ignore_errors=True)
        return old


def _write(path: Path, value: Any) -> None:
    """Replace a file by JSON, at once, also for a reader on another node."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
