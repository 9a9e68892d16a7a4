# SPDX-License-Identifier: Apache-2.0
"""How a step is remembered on its Job."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfp_volcano.errors import ClusterError, ForbiddenError, NotFoundError, UnavailableError
from kfp_volcano.schemas.names import STEPS
from kfp_volcano.schemas.records import StepRecord, parse_list
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher import steps
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.step_record import record_step, recorded

REF = JobRef("default", "train")


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path):
    cluster = EmbeddedCluster(tmp_path, nodes="1x1")
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "command": ["true"]}]}
    tasks = [{"name": "worker", "replicas": 1, "template": {"spec": pod}}]
    cluster.create(
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": REF.name, "namespace": REF.namespace},
            "spec": {"queue": "default", "minAvailable": 1, "tasks": tasks},
        }
    )
    yield cluster
    cluster.shutdown(grace_s=0)


def outcomes(cluster: EmbeddedCluster) -> list[str]:
    """How the steps stand that are noted on the Job."""
    return [record.outcome for record in parse_list(StepRecord, annotation(REF.read(cluster), STEPS))]


def test_a_step_is_noted_while_it_runs_and_how_it_ended(cluster):
    """One entry, whose outcome changes."""
    with recorded(cluster, REF, "train-1") as recording:
        assert outcomes(cluster) == ["Running"]
        recording.outcome = "Resized"
    assert outcomes(cluster) == ["Resized"]


@pytest.mark.parametrize("error", [UnavailableError, ForbiddenError, NotFoundError])
def test_a_step_whose_work_is_done_does_not_fail_for_its_note(cluster, monkeypatch, capsys, error: type[ClusterError]):
    """A Job that succeeded never fails its step: not where the API server is away just then, nor where it is gone."""
    with recorded(cluster, REF, "train-1"):

        def refuse(*_args: object, **_options: object) -> None:
            raise error("not now")

        monkeypatch.setattr(cluster, "patch", refuse)
    assert "not now" in capsys.readouterr().out
    assert outcomes(cluster) == ["Running"]


def test_what_went_wrong_is_told_although_it_cannot_be_noted(cluster, monkeypatch):
    """The step's own error comes before the note's."""

    def refuse(*_args: object, **_options: object) -> None:
        raise UnavailableError("not now")

    def fail() -> None:
        with recorded(cluster, REF, "train-1"):
            monkeypatch.setattr(cluster, "patch", refuse)
            raise LookupError

    with pytest.raises(LookupError):
        fail()


def test_notes_that_cannot_be_read_are_written_anew(cluster):
    """Anybody may write annotations: none of them stops a step."""
    patch = [{"op": "add", "path": "/metadata/annotations", "value": {STEPS: "no JSON"}}]
    cluster.patch("Job", REF.name, REF.namespace, patch)
    record_step(cluster, REF, "submit", "Succeeded", 1.0)
    assert outcomes(cluster) == ["Succeeded"]


def test_a_job_that_was_created_fails_no_submit_for_its_notes(cluster, monkeypatch, capsys):
    """A step that failed would leave a Job that nobody follows, nor concludes."""

    def refuse(*_args: object, **_options: object) -> None:
        raise ForbiddenError("not yours")

    job = training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "digits"},
            "spec": {
                "framework": "custom",
                "image": "any",
                "command": ["sleep", "600"],
                "queue": "default",
                "roles": {"worker": {"replicas": 1}},
                "elasticity": {"strategy": "fixed"},
            },
        }
    )
    monkeypatch.setattr(steps, "record_step", refuse)
    monkeypatch.setattr(steps.JobLease, "hold", refuse)
    ref = steps.create_job(cluster, job, run_id="run", part=(), folder="", volume="")
    assert ref.read(cluster)
    assert capsys.readouterr().out.count("not yours") == 2
