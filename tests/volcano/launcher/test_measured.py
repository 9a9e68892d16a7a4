# SPDX-License-Identifier: Apache-2.0
"""A training's next start follows what was advised on earlier ones, within what its spec allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.schemas.names import ADVICE
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.records import Advice, dump
from kfp_volcano.schemas.training_job import Resources
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import update_annotation
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.measured import advice_of, advised_requests, keep_advice
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADVISED = Advice(at=5.0, explanation="3.5 CPUs would do", cpu="3500m", memory="12884901888")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """A cluster whose Jobs need not run."""
    cluster = EmbeddedCluster(tmp_path)
    yield cluster
    cluster.shutdown(grace_s=0)


def start(cluster: EmbeddedCluster, run: str, *, measured: bool = True) -> dict[str, Any]:
    resources = {"cpu": 4, "memory": "16Gi", "gpu": 1, "measured": measured}
    spec = {
        "framework": "custom",
        "image": "any",
        "command": ["sleep", "600"],
        "queue": "research",
        "roles": {"worker": {"replicas": 1, "resources": resources}},
        "elasticity": {"strategy": "fixed"},
    }
    job = training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "digits", "namespace": "ml"},
            "spec": spec,
        }
    )
    return submit(cluster, job, run_id=run, step="submit", now=0.0)


def requests(job: dict[str, Any]) -> dict[str, str]:
    [task] = job["spec"]["tasks"]
    asked = task["template"]["spec"]["containers"][0]["resources"]["requests"]
    return {name: asked[name] for name in ("cpu", "memory")}


def advise(cluster: EmbeddedCluster, job: dict[str, Any]) -> dict[str, Any]:
    name = job["metadata"]["name"]
    return update_annotation(cluster, "Job", name, "ml", ADVICE, lambda _: dump(ADVISED))


def test_the_next_start_follows_what_was_advised(cluster: EmbeddedCluster) -> None:
    """While the Job with the advice is there, and once it was concluded and is gone; only where the spec says so."""
    first = start(cluster, "one")
    assert requests(first) == {"cpu": "4", "memory": "16Gi"}
    advised = advise(cluster, first)
    assert requests(start(cluster, "two")) == {"cpu": "3500m", "memory": "12884901888"}
    keep_advice(cluster, advised)
    for job in cluster.list("Job", "ml")[0]:
        cluster.delete("Job", job["metadata"]["name"], "ml")
    third = start(cluster, "three")
    assert requests(third) == {"cpu": "3500m", "memory": "12884901888"}
    assert advice_of(third) == ADVISED
    assert requests(start(cluster, "four", measured=False)) == {"cpu": "4", "memory": "16Gi"}


def advice_kept(cluster: EmbeddedCluster) -> list[dict[str, Any]]:
    """The ConfigMaps but those that the Job's own plugin makes, sooner or later."""
    return [each for each in cluster.list("ConfigMap", "ml")[0] if not each["metadata"]["name"].endswith("-svc")]


def test_advice_is_kept_for_each_training(cluster: EmbeddedCluster) -> None:
    """Newer advice takes the place of older; without advice nothing is written."""
    job = start(cluster, "one")
    keep_advice(cluster, job)
    assert advice_kept(cluster) == []
    for _ in range(2):
        keep_advice(cluster, advise(cluster, job))
    [kept] = advice_kept(cluster)
    assert kept["data"] == {"digits": dump(ADVISED)}


@given(st.integers(1, 10**6), st.integers(1, 10**15), st.booleans())
def test_advice_is_followed_within_bounds(cpu: int, memory: int, limited: bool) -> None:
    """Between a quarter and twice of what is written, and never above a limit."""
    written = Resources(cpu="4", memory="16Gi", limits={"cpu": "6"} if limited else {}, measured=True)
    found = advised_requests(written, Advice(at=0.0, explanation="", cpu=f"{cpu}m", memory=str(memory)))
    assert 1 <= quantity(found["cpu"]) <= (6 if limited else 8)
    assert 4 * 2**30 <= quantity(found["memory"]) <= 32 * 2**30
