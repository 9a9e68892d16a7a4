# SPDX-License-Identifier: Apache-2.0
"""The priority of a live Job: what changes, what stays, and what is refused."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest
import yaml

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.gpu_pools import bound, gpu_pools
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.manifests.priority import priority_change, priority_classes

VALUES = {each["metadata"]["name"]: each["value"] for each in priority_classes()}


def stored(priority: str | None, replicas: Any = 2, **spec: Any) -> Any:
    """A Job as the API server keeps it."""
    roles = {"worker": {"replicas": replicas, "resources": {"gpu": 1, "gpuShare": {"cores": 50}}}}
    spec = {"framework": "pytorch", "image": "x", "command": ["x"], "queue": "q", "roles": roles, **spec}
    if isinstance(replicas, dict):
        spec["elasticity"] = {"strategy": "restart"}
    if priority:
        spec["priority"] = priority
    value = {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "a"}, "spec": spec}
    if not isinstance(replicas, dict):
        value["spec"]["elasticity"] = {"strategy": "fixed"}
    pools = {"p": {"priorities": ["batch"], "max": 4}}
    job = training_job(value)
    if priority == "batch":
        document = {
            "apiVersion": "kfp-volcano/v1",
            "kind": "GPUPools",
            "metadata": {"name": "x"},
            "spec": {"pools": pools},
        }
        job = bound(job, gpu_pools(document))
    manifest = job_manifest(job, name="a-1", run_id="r", step="submit", workers=2)
    manifest["metadata"]["uid"] = "0d5c"
    return manifest


def test_deploy_installs_the_classes_that_the_embedded_cluster_has(root: Any) -> None:
    """The pairs of `deploy/priorities`, each file in its kustomization."""
    folder = root / "deploy" / "priorities"
    files = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    installed = [each for file in files for each in yaml.safe_load_all((folder / file).read_text())]
    assert installed == priority_classes()
    for name, value in VALUES.items():
        if not name.endswith("-surplus"):
            assert VALUES[f"{name}-surplus"] < value


@pytest.mark.parametrize("before", [None, "batch-low", "batch", "interactive"])
@pytest.mark.parametrize("to", ["batch-low", "batch", "interactive"])
def test_the_patch_changes_the_class_alone(before: str | None, to: str) -> None:
    """Up and down for a Job of fixed size, and nothing where it has the class."""
    job = stored(before)
    change = priority_change(job, to, VALUES)
    patched = jsonpatch.apply_patch(job, change.patch)
    assert patched == {**job, "spec": {**job["spec"], "priorityClassName": to}}
    assert bool(change.patch) is (before != to)


def test_the_patch_meets_only_the_job_that_it_was_made_from() -> None:
    """Another object of the name, or another priority by now, refuses it."""
    job = stored("batch")
    patch = priority_change(job, "interactive", VALUES).patch
    for changed in (
        {**job, "metadata": {**job["metadata"], "uid": "other"}},
        {**job, "spec": {**job["spec"], "priorityClassName": "batch-low"}},
    ):
        with pytest.raises(jsonpatch.JsonPatchTestFailed):
            jsonpatch.apply_patch(changed, patch)


def test_what_a_change_reaches_and_what_not_is_told() -> None:
    """The PodGroup and new pods; not pods that are there, the surplus, and the pool of GPUs."""
    change = priority_change(stored("batch", {"min": 2, "max": 4}), "interactive", VALUES)
    assert "PodGroup gets interactive (100000)" in change.reached[0]
    assert "coordinator, core" in change.reached[1]
    assert [sentence for sentence in change.kept if "batch-surplus" in sentence]
    assert [sentence for sentence in change.kept if "GPU pool p" in sentence]


@pytest.mark.parametrize(
    ("before", "to"), [("interactive", "batch"), ("batch", "batch-low"), (None, "batch"), ("batch", "batch-surplus")]
)
def test_a_surplus_never_comes_to_outrank_its_gang(before: str | None, to: str) -> None:
    """The class of the surplus stands in a template, which stays: a change below it is refused."""
    with pytest.raises(SpecError, match="template") as raised:
        priority_change(stored(before, {"min": 2, "max": 4}), to, VALUES)
    assert "submit it again" in str(raised.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    """A Job that has ended, a class that is not there."""
    job = {**stored("batch"), "status": {"state": {"phase": "Completed"}}}
    with pytest.raises(SpecError) as raised:
        priority_change(job, "urgent", VALUES)
    assert [problem.path for problem in raised.value.problems] == ["status", "spec.priority"]
    assert "deploy/priorities" in str(raised.value)
