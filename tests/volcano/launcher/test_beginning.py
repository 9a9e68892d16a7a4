# SPDX-License-Identifier: Apache-2.0
"""A program that fails at once is explained, though nobody follows its Job yet."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.beginning import failed_at_once
from kfp_volcano.volcano.launcher.ending import Failures, explain_failure
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.step_record import record_step
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    cluster = EmbeddedCluster(tmp_path)
    yield cluster
    cluster.shutdown(grace_s=0)


def start(cluster: Any, program: str) -> JobRef:
    spec = {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "job", "namespace": "ml"},
        "spec": {
            "framework": "custom",
            "image": "any",
            "command": ["sh", "-c", program],
            "queue": "research",
            "roles": {"worker": {"replicas": 1, "resources": {"gpu": 1}}},
        },
    }
    return JobRef.of(submit(cluster, training_job(spec), run_id="run", step="submit", now=time.time()))


def look(cluster: Any, ref: JobRef) -> str:
    """Look on, ten times as often as in a run, and for longer than any of this takes."""
    return failed_at_once(cluster, ref, clock=lambda: time.monotonic() / 6, sleep=lambda s: time.sleep(s / 10))


def test_what_failed_first_is_kept_for_the_step_that_comes_a_minute_later(cluster: EmbeddedCluster) -> None:
    """Which pod, how, and its last lines; also when its pods are gone by then."""
    ref = start(cluster, "echo no module named torsh; exit 3")
    saw = look(cluster, ref)
    assert "failed with exit code 3" in saw
    assert "no module named torsh" in saw
    record_step(cluster, ref, "submit", "Succeeded", 0.0, ended_at=1.0, saw=saw)
    assert saw in explain_failure(ref.read(cluster), Failures(cluster, "ml"))


def test_a_training_that_begins_well_is_left_to_who_follows_it(cluster: EmbeddedCluster) -> None:
    """Nothing has failed, so nothing is said."""
    assert look(cluster, start(cluster, "sleep 600")) == ""


def test_a_gang_that_waits_is_not_waited_for(cluster: EmbeddedCluster) -> None:
    """It may take days."""
    ticks = iter(range(100))
    waiting = JobRef("ml", "without-pods-yet")
    assert failed_at_once(cluster, waiting, clock=lambda: float(next(ticks)), sleep=lambda _: None) == ""
    assert next(ticks) < 30
