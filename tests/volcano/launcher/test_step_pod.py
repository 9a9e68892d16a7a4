# SPDX-License-Identifier: Apache-2.0
"""Where a run's Jobs go, whose they are, and that its steps can start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.step_pod import check_mount, in_own_namespace, run_of, unowned
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKFLOW = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "run-x", "uid": "u1"}
STEP: dict[str, Any] = {
    "metadata": {
        "name": "step",
        "namespace": "vision",
        "ownerReferences": [{**WORKFLOW, "controller": True, "blockOwnerDeletion": True}],
    }
}
UNREAD: dict[str, Any] = {"metadata": {"name": "step", "namespace": "vision"}}


def wire(**metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits", **metadata},
        "spec": {
            "framework": "custom",
            "image": "any",
            "command": ["true"],
            "queue": "research",
            "roles": {"worker": {"replicas": 1}},
            "checkpoint": {"volume": "files"},
        },
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    cluster = EmbeddedCluster(tmp_path)
    yield cluster
    cluster.shutdown(grace_s=0)


def claim(cluster: EmbeddedCluster, namespace: str) -> None:
    metadata = {"name": "files", "namespace": namespace}
    cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}})


def test_a_spec_without_a_namespace_goes_to_that_of_its_run() -> None:
    """In a Kubeflow profile its rights and quotas hold there; what a spec says counts, and what is no spec is left."""
    assert in_own_namespace(wire(), STEP)["metadata"]["namespace"] == "vision"
    assert in_own_namespace(wire(namespace="speech"), STEP)["metadata"]["namespace"] == "speech"
    assert in_own_namespace(wire(), None) == wire()
    for broken in (None, "text", [], {}, {"metadata": "x"}):
        assert in_own_namespace(broken, STEP) == broken


def test_a_job_goes_with_its_run_where_both_are_in_one_namespace(cluster: EmbeddedCluster) -> None:
    """The Workflow owns it, without being its controller or waiting for it."""
    job = training_job(wire(namespace="vision"))
    owner = run_of(STEP)
    assert owner == WORKFLOW
    assert unowned(STEP, job.namespace) is None
    made = submit(cluster, job, run_id="run", step="submit", now=0.0, owner=owner)
    assert made["metadata"]["ownerReferences"] == [WORKFLOW]


@pytest.mark.parametrize(
    ("pod", "namespace", "why"),
    [(STEP, "speech", "in namespace vision and its Job in speech"), (UNREAD, "vision", "vision/step names no Argo")],
)
def test_why_a_run_cannot_own_its_job_is_said(pod: dict[str, Any], namespace: str, why: str) -> None:
    """With who removes it then."""
    said = unowned(pod, namespace) or ""
    assert why in said
    assert "kfp-volcano reap" in said
    assert unowned(None, namespace) is None


def test_a_pod_that_another_kind_of_thing_owns_is_no_step() -> None:
    """A ReplicaSet is no run, and so is another project's Workflow."""
    for other in ({**WORKFLOW, "kind": "ReplicaSet"}, {**WORKFLOW, "apiVersion": "example.org/v1"}):
        pod = {"metadata": {**STEP["metadata"], "ownerReferences": [other]}}
        assert run_of(pod) is None


def test_no_step_is_left_to_wait_for_a_volume_that_is_not_there(cluster: EmbeddedCluster) -> None:
    """The exit task of a terminated run would wait for ever."""
    job = training_job(wire(namespace="vision"))
    with pytest.raises(SpecError, match="namespace vision has no claim files"):
        check_mount(cluster, STEP, job, "files")
    claim(cluster, "vision")
    assert check_mount(cluster, STEP, job, "files") is None
    with pytest.raises(SpecError, match="the steps mount claim other, the workers save to files"):
        check_mount(cluster, STEP, job, "other")


def test_a_volume_that_the_steps_do_not_see_is_spoken_of_before_the_training(cluster: EmbeddedCluster) -> None:
    """And so is one of the same name in another namespace; outside of a pod there is nothing to mount."""
    claim(cluster, "vision")
    here, there = (training_job(wire(namespace=namespace)) for namespace in ("vision", "speech"))
    assert 'say volume="files"' in (check_mount(cluster, STEP, here, "") or "")
    assert "two volumes" in (check_mount(cluster, STEP, there, "files") or "")
    assert check_mount(cluster, None, here, "files") is None
    without = wire(namespace="vision")
    del without["spec"]["checkpoint"]
    assert check_mount(cluster, STEP, training_job(without), "") is None
