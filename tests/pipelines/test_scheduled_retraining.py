# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfp_volcano.pipelines.ir import compiled

RUN_ID = "{{$.pipeline_job_uuid}}"


@pytest.fixture(name="documents", scope="module")
def _documents() -> list[dict[str, Any]]:
    """The pipeline as a backend gets it: its IR, and what it says of the platform."""
    root = Path(__file__).resolve().parents[2]
    return list(yaml.safe_load_all(compiled(root / "pipelines" / "scheduled_retraining.py").text))


def tasks(node: Any) -> Iterator[dict[str, Any]]:
    """All tasks of all DAGs."""
    for component in (node["root"], *node["components"].values()):
        yield from component.get("dag", {}).get("tasks", {}).values()


def test_no_step_of_it_may_be_answered_from_the_cache(documents: list[dict[str, Any]]):
    """Caching is off at each step, at whatever depth, and each takes the run's id: KFP's cache never knows it."""
    ir = documents[0]
    steps = [task for task in tasks(ir) if "executorLabel" in ir["components"][task["componentRef"]["name"]]]
    assert len(steps) >= 9
    for step in steps:
        assert not step.get("cachingOptions", {}).get("enableCache"), step["taskInfo"]
    for name in ("check-data", "stage-model", "promote-model", "submit-job"):
        (step,) = (task for task in steps if task["componentRef"]["name"] == f"comp-{name}")
        assert step["inputs"]["parameters"]["run_id"]["runtimeValue"]["constant"] == RUN_ID


def test_nothing_is_trained_unless_there_is_new_data(documents: list[dict[str, Any]]):
    """Beside the check the pipeline has one task, and that has the check's answer for a condition."""
    root = documents[0]["root"]["dag"]["tasks"]
    (gated,) = (task for name, task in root.items() if name != "check-data")
    assert "== 'train'" in gated["triggerPolicy"]["condition"]
    assert gated["dependentTasks"] == ["check-data"]


def test_the_steps_that_read_the_volume_mount_it(documents: list[dict[str, Any]]):
    """On a backend a step sees what it mounts."""
    executors = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for name in ("check-data", "stage-model", "promote-model"):
        (mounted,) = executors[f"exec-{name}"]["pvcMount"]
        assert mounted["mountPath"] == "/kfp-volcano/volume"


def test_what_commands_talk_to_does_not_change_what_is_compiled(
    documents: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    """`KFP_VOLCANO_CLUSTER=kubernetes` is for commands; a backend's pipeline has retries, and no path from here."""
    monkeypatch.setenv("KFP_VOLCANO_CLUSTER", "kubernetes:staging")
    root = Path(__file__).resolve().parents[2]
    assert list(yaml.safe_load_all(compiled(root / "pipelines" / "scheduled_retraining.py").text)) == documents
    assert str(root) not in str(documents)


def test_it_is_of_low_priority_by_default(documents: list[dict[str, Any]]):
    """A retraining waits for others and gives way."""
    assert documents[0]["root"]["inputDefinitions"]["parameters"]["priority"]["defaultValue"] == "batch-low"
