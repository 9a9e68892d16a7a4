# SPDX-License-Identifier: Apache-2.0
"""A KFP component as the workers of a Job: what it takes in, and what it leaves, on the Job's volume.

KFP's launcher brings a step its input artifacts and takes its outputs away; on a Job's workers there is none. So the
step that creates the Job lays the inputs down on the volume, each worker writes its outputs into a folder of its own
there, and the step that takes in the results carries those of the first worker to where KFP looks for them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import JobFailedError, UnavailableError
from kfp_volcano.schemas import names
from kfp_volcano.volcano.launcher.placeholders import filled_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kfp_volcano.schemas.training_job import TrainingJob

__all__ = ["LEADER", "collect_outputs", "input_artifacts", "lay_down", "worker_command"]

LEADER = f"{names.CORE}-0"
"""The folder of the worker whose outputs count: the first of the gang."""
_FOLDER = "component"
_OUTPUT = "executor_output.json"
_EACH = f"$({names.ENV_TASK})-$({names.ENV_TASK_INDEX})"
"""A worker's own folder, in words that Kubernetes replaces in a command."""
_NOWHERE = "/tmp/kfp-volcano"  # noqa: S108  # in the container's own file system


def worker_command(component: Mapping[str, Any], given: Mapping[str, Any], *, job: str, volume: bool) -> list[str]:
    """The component's command for each worker.

    Args:
        component: `command`, and `outputs` as in an `ExecutorInput`, without their places.
        given: The `inputs` of the step's own `ExecutorInput`.
        job: The Job's name.
        volume: Whether the workers have a volume in common; without one there are no artifacts and no outputs.
    """
    root = f"{names.MOUNT_PATH}/{job}/{_FOLDER}" if volume else _NOWHERE
    inputs: dict[str, Any] = _literal(given)
    for name, index, artifact in input_artifacts(inputs):
        artifact["uri"] = f"{root}/{_place(name, index)}"
    own = f"{root}/{_EACH}"
    outputs: dict[str, Any] = {
        "parameters": {name: {"outputFile": f"{own}/{name}"} for name in component["outputs"]["parameters"]},
        "artifacts": {
            name: {"artifacts": [{"name": name, "type": kind, "uri": f"{own}/{name}", "metadata": {}}]}
            for name, kind in component["outputs"]["artifacts"].items()
        },
        "outputFile": f"{own}/{_OUTPUT}",
    }
    return filled_in(component["command"], {"inputs": inputs, "outputs": outputs})


def lay_down(volume: Path | None, job: TrainingJob, name: str, paths: Mapping[tuple[str, int], Path]) -> None:
    """Put input artifacts on the volume, and make the workers' folders there; what is there already stays.

    Args:
        volume: Where this process sees the volume.
        job: The training whose workers run the component.
        name: The Job's name.
        paths: From an input artifact's name and its number in a list to its files here.
    """
    if job.checkpoint is None:
        return
    root = _root(volume, name)
    replicas = job.workers.replicas
    for task, count in ((names.CORE, replicas.min), (names.ELASTIC, replicas.max - replicas.min)):
        for index in range(count):
            (root / f"{task}-{index}").mkdir(parents=True, exist_ok=True)
    for (artifact, index), source in paths.items():
        target = root / _place(artifact, index)
        if source.exists() and not target.exists():  # an artifact may be its metadata alone
            partial = target.with_name(f".{target.name}")
            _copy(source, partial)
            partial.rename(target)


def collect_outputs(
    volume: Path | None, job: str, wanted: Mapping[str, Any], path_of: Callable[[str], Path]
) -> dict[str, Any]:
    """Take in what the first worker wrote.

    Args:
        volume: Where this process sees the volume.
        job: The Job's name.
        wanted: The `outputs` of this step's `ExecutorInput`.
        path_of: From an artifact's URI to where KFP expects its files in this step.

    Returns:
        The `ExecutorOutput` of this step.

    Raises:
        JobFailedError: The worker left a declared output parameter out, or put an artifact where nobody can get it.
        UnavailableError: The volume is not mounted here.
    """
    if not wanted.get("parameters") and not wanted.get("artifacts"):
        return {}
    root = _root(volume, job) / LEADER
    written = root / _OUTPUT
    told: dict[str, Any] = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
    values: dict[str, Any] = told.get("parameterValues", {})
    missing = []
    for name, place in wanted.get("parameters", {}).items():
        if (root / name).is_file():
            _copy(root / name, Path(place["outputFile"]))
        elif name not in values:
            missing.append(name)
    if missing:
        raise JobFailedError(f"the first worker left no output {', '.join(missing)} in {root}")
    artifacts = {}
    for name, places in wanted.get("artifacts", {}).items():
        own = places["artifacts"][0]
        said = (told.get("artifacts", {}).get(name, {}).get("artifacts") or [{}])[0]
        artifacts[name] = {"artifacts": [_taken(name, own, said, root / name, path_of)]}
    return {
        "parameterValues": {name: values[name] for name in wanted.get("parameters", {}) if name in values},
        "artifacts": artifacts,
    }


def _taken(
    name: str, own: Mapping[str, Any], said: Mapping[str, Any], source: Path, path_of: Callable[[str], Path]
) -> dict[str, Any]:
    """An output artifact as this step tells KFP of it, its files in their place."""
    if said.get("custom_path"):
        raise JobFailedError(f"output {name}: the component put it at {said['custom_path']}, which only its pod sees")
    uri = said.get("uri", "")
    elsewhere = "://" in uri  # the component has brought it to a store itself
    if not elsewhere and source.exists():
        _copy(source, path_of(own["uri"]))
    metadata = {**own.get("metadata", {}), **said.get("metadata", {})}
    return {"name": own.get("name", name), "uri": uri if elsewhere else own["uri"], "metadata": metadata}


def _root(volume: Path | None, job: str) -> Path:
    if volume is None:
        raise UnavailableError("the Job's volume is not mounted in this step: it cannot pass artifacts on")
    return volume / job / _FOLDER


def input_artifacts(inputs: Mapping[str, Any]) -> list[tuple[str, int, dict[str, Any]]]:
    """The input artifacts in `inputs` of an `ExecutorInput`, each with its name and its number in a list."""
    return [
        (name, index, artifact)
        for name, found in inputs.get("artifacts", {}).items()
        for index, artifact in enumerate((found or {}).get("artifacts", ()))
    ]


def _place(name: str, index: int) -> str:
    return f"inputs/{name}/{index}"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def _literal(value: Any) -> Any:
    """A copy in which Kubernetes finds nothing to replace: `$(NAME)` in a value is no variable."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {_literal(key): _literal(part) for key, part in value.items()}
    return [_literal(part) for part in value] if isinstance(value, list) else value
