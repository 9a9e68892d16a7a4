# SPDX-License-Identifier: Apache-2.0
"""A trial's Job on an embedded cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import JobFailedError
from kfp_volcano.schemas.names import PROGRESS
from kfp_volcano.schemas.records import Progress, dump
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import update_annotation
from kfp_volcano.volcano.cluster.awaiting import until
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.searching.trial import News, TrialJob, cancel_trials, run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., TrialJob]

LONG_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """With two GPUs."""
    cluster = EmbeddedCluster(tmp_path, nodes="1x2")
    yield cluster
    cluster.shutdown(grace_s=0)


@pytest.fixture
def start(cluster: EmbeddedCluster) -> Start:
    """A trial that takes both GPUs and does what a shell is told."""

    def begin(command: str, run: str = "one-1-1") -> TrialJob:
        job = training_job(
            {
                "apiVersion": "kfp-volcano/v1",
                "kind": "TrainingJob",
                "metadata": {"name": "t", "namespace": "n"},
                "spec": {
                    "framework": "custom",
                    "image": "i",
                    "command": ["sh", "-c", command],
                    "queue": "research",
                    "roles": {"worker": {"replicas": 2, "resources": {"gpu": 1}}},
                    "elasticity": {"strategy": "fixed"},
                    "faults": {"retries": 1},
                },
            }
        )
        return TrialJob(cluster, job, run_id=run, metric="accuracy", folder="", say=lambda _: None)

    return begin


def tell(cluster: EmbeddedCluster, trial: TrialJob, metrics: dict[str, float]) -> None:
    """As the coordinator does: half of the steps are done."""
    progress = Progress(
        step=5, total_steps=10, samples=5, epoch=0, throughput=1, workers=1, batch=1, lr=1, at=0, metrics=metrics
    )
    update_annotation(cluster, "Job", trial.ref.name, trial.ref.namespace, PROGRESS, lambda _: dump(progress))


def runs(cluster: EmbeddedCluster, trial: TrialJob, *, patience_s: float = LONG_S) -> bool:
    """Whether both of its workers come to run."""

    def both(pods: list[Any]) -> bool | None:
        own = [pod for pod in pods if pod["metadata"]["labels"]["volcano.sh/job-name"] == trial.ref.name]
        return [pod["status"]["phase"] for pod in own] == ["Running"] * 2 or None

    return bool(until(cluster, "Pod", "n", both, patience_s=patience_s))


def test_a_trial_tells_how_far_it_is_and_that_it_has_ended(
    cluster: EmbeddedCluster, start: Start, tmp_path: Path
) -> None:
    """Who has logged nothing yet has no value; at the end the last one counts."""
    trial = start(f"while [ ! -e {tmp_path}/end ]; do sleep 0.1; done")
    assert trial.wait(0.0) == News()
    tell(cluster, trial, {"accuracy": 0.75})
    assert trial.wait(0.0) == News(percent=50.0, value=0.75)
    (tmp_path / "end").touch()
    assert trial.wait(LONG_S) == News(percent=100.0, value=0.75, ended=True)


def test_who_waits_has_the_gpus_of_a_trial_that_is_stopped(cluster: EmbeddedCluster, start: Start) -> None:
    """At once: the Job goes with its pods."""
    bad = start("sleep 600")
    assert runs(cluster, bad)
    waiting = start("sleep 600", "one-2-1")
    assert not runs(cluster, waiting, patience_s=0.5)
    bad.stop()
    assert runs(cluster, waiting)
    assert [job["metadata"]["name"] for job in cluster.list("Job", "n")[0]] == [waiting.ref.name]
    waiting.stop()


@pytest.mark.parametrize(
    ("command", "metrics", "reason"),
    [
        ("exit 3", {}, "exit code 3"),
        ("true", {}, r"logged no accuracy: training\.log\(accuracy=\.\.\.\)"),
        ("sleep 600", {"accuracy": float("nan")}, "is no number"),
    ],
    ids=["failed", "nothing logged", "not a number"],
)
def test_a_trial_that_fails_says_why(
    cluster: EmbeddedCluster, start: Start, command: str, metrics: dict[str, float], reason: str
) -> None:
    """A training that failed, that logged nothing, and one whose model is broken."""
    trial = start(command)
    if metrics:
        tell(cluster, trial, metrics)
    with pytest.raises(JobFailedError, match=reason):
        trial.wait(0.0 if metrics else LONG_S)
    trial.stop()


def test_of_a_search_that_is_interrupted_no_job_trains_on(cluster: EmbeddedCluster, start: Start) -> None:
    """Another search's does, and what has ended stays to be looked at."""
    ended = start("exit 3", run_id("mine", 1, 1))
    with pytest.raises(JobFailedError):
        ended.wait(LONG_S)
    start("sleep 600", run_id("mine", 2, 1))
    other = start("sleep 600", run_id("minor", 1, 1))
    assert cancel_trials(cluster, "n", "mine") == 1
    left = {job["metadata"]["name"] for job in cluster.list("Job", "n")[0]}
    assert left == {ended.ref.name, other.ref.name}
    other.stop()
