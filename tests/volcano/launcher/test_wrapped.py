# SPDX-License-Identifier: Apache-2.0
"""A component's inputs and outputs travel over the Job's volume, each worker's for itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import JobFailedError, UnavailableError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.launcher.wrapped import LEADER, collect_outputs, lay_down, worker_command

if TYPE_CHECKING:
    from kfp_volcano.schemas.training_job import TrainingJob

COMPONENT = {
    "command": ["run", "{{$.inputs.parameters['text']}}", "{{$.inputs.artifacts['data'].path}}", "{{$}}"],
    "outputs": {
        "parameters": ["score"],
        "artifacts": {"model": {"schemaTitle": "system.Model", "schemaVersion": "0.0.1"}},
    },
}
WANTED = {
    "parameters": {"score": {"outputFile": "score"}},
    "artifacts": {"model": {"artifacts": [{"name": "model", "uri": "minio://bucket/model", "metadata": {}}]}},
}


def job() -> TrainingJob:
    """Two workers, or up to three."""
    role = {"replicas": {"min": 2, "max": 3}}
    return training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "t"},
            "spec": {
                "framework": "custom",
                "image": "i",
                "command": ["c"],
                "queue": "q",
                "roles": {"worker": role},
                "elasticity": {"strategy": "restart"},
                "checkpoint": {"volume": "shared"},
            },
        }
    )


def given(text: str = "x") -> dict[str, Any]:
    """A step's inputs as KFP says them."""
    artifact = {"name": "data", "uri": "minio://bucket/data", "metadata": {"rows": 3}}
    return {"parameterValues": {"text": text}, "artifacts": {"data": {"artifacts": [artifact]}}}


@pytest.fixture(name="wanted")
def _wanted(tmp_path: Path) -> dict[str, Any]:
    return {**WANTED, "parameters": {"score": {"outputFile": str(tmp_path / "step" / "score")}}}


def test_each_worker_has_outputs_of_its_own_and_all_have_the_inputs() -> None:
    """Paths on the volume; what tells the workers apart is replaced by Kubernetes."""
    _, text, data, message = worker_command(COMPONENT, given(), job="j", volume=True)
    assert text == "x"
    assert data == "/kfp-volcano/volume/j/component/inputs/data/0"
    told = json.loads(message)
    own = "/kfp-volcano/volume/j/component/$(KFP_VOLCANO_TASK)-$(KFP_VOLCANO_TASK_INDEX)"
    assert told["inputs"]["artifacts"]["data"]["artifacts"][0] == {
        "name": "data",
        "uri": data,
        "metadata": {"rows": 3},
    }
    assert told["outputs"]["outputFile"] == f"{own}/executor_output.json"
    assert told["outputs"]["artifacts"]["model"]["artifacts"][0]["uri"] == f"{own}/model"
    assert told["outputs"]["parameters"]["score"]["outputFile"] == f"{own}/score"


@pytest.mark.parametrize("value", ["$(HOME)", "$$", "a$b", "$(KFP_VOLCANO_TASK)"])
def test_kubernetes_replaces_nothing_in_a_value(value: str) -> None:
    """`$$` is how Kubernetes writes a dollar sign."""
    _, text, _, message = worker_command(COMPONENT, given(value), job="j", volume=True)
    assert text.replace("$$", "$") == value
    assert json.loads(message)["inputs"]["parameterValues"]["text"] == text


def test_inputs_are_laid_down_once_and_each_worker_finds_its_folder(tmp_path: Path) -> None:
    """A retried step leaves alone what workers may be reading; an artifact may be its metadata alone."""
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.txt").write_text("a")
    file = tmp_path / "file"
    file.write_text("f")
    paths = {("data", 0): source, ("data", 1): file, ("none", 0): tmp_path / "absent"}
    lay_down(tmp_path / "volume", job(), "j", paths)
    root = tmp_path / "volume" / "j" / "component"
    assert (root / "inputs" / "data" / "0" / "a.txt").read_text() == "a"
    assert (root / "inputs" / "data" / "1").read_text() == "f"
    assert sorted(path.name for path in root.iterdir()) == ["core-0", "core-1", "elastic-0", "inputs"]
    file.write_text("changed")
    lay_down(tmp_path / "volume", job(), "j", paths)
    assert (root / "inputs" / "data" / "1").read_text() == "f"


def test_the_first_workers_outputs_are_the_tasks(tmp_path: Path, wanted: dict[str, Any]) -> None:
    """Parameters by file or by message, artifacts with their metadata, files to where KFP expects them."""
    root = tmp_path / "volume" / "j" / "component" / LEADER
    (root / "model").mkdir(parents=True)
    (root / "model" / "weights").write_text("w")
    (root / "score").write_text("0.5")
    said = {"name": "", "uri": str(root / "model"), "metadata": {"epochs": 3}}
    (root / "executor_output.json").write_text(json.dumps({"artifacts": {"model": {"artifacts": [said]}}}))
    here = tmp_path / "minio" / "model"
    told = collect_outputs(tmp_path / "volume", "j", wanted, lambda _: here)
    assert Path(wanted["parameters"]["score"]["outputFile"]).read_text() == "0.5"
    assert (here / "weights").read_text() == "w"
    model = {"name": "model", "uri": "minio://bucket/model", "metadata": {"epochs": 3}}
    assert told == {"parameterValues": {}, "artifacts": {"model": {"artifacts": [model]}}}


def test_what_the_component_brought_to_a_store_itself_stays_there(tmp_path: Path, wanted: dict[str, Any]) -> None:
    """An artifact's URI may be set by the component."""
    root = tmp_path / "volume" / "j" / "component" / LEADER
    root.mkdir(parents=True)
    output = {
        "parameterValues": {"score": 0.5, "unasked": 1},
        "artifacts": {"model": {"artifacts": [{"name": "model", "uri": "gs://theirs/model", "metadata": {}}]}},
    }
    (root / "executor_output.json").write_text(json.dumps(output))
    told = collect_outputs(tmp_path / "volume", "j", wanted, lambda _: tmp_path / "never")
    assert told["parameterValues"] == {"score": 0.5}
    assert told["artifacts"]["model"]["artifacts"][0]["uri"] == "gs://theirs/model"
    assert not (tmp_path / "never").exists()


def test_a_missing_output_and_a_missing_volume_are_named(tmp_path: Path, wanted: dict[str, Any]) -> None:
    """A downstream step never gets nothing in place of a value."""
    with pytest.raises(JobFailedError, match="score"):
        collect_outputs(tmp_path, "j", wanted, lambda _: tmp_path)
    with pytest.raises(UnavailableError, match="not mounted"):
        collect_outputs(None, "j", wanted, lambda _: tmp_path)
    assert collect_outputs(None, "j", {}, lambda _: tmp_path) == {}
