# SPDX-License-Identifier: Apache-2.0
"""What a run creates, and that none of it is left behind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import UnavailableError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.conclude import clean_up
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLAIM = "ResourceClaimTemplate"


def spec(command: str) -> Any:
    """A worker with a GPU and a NIC by one claim."""
    return training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "joint", "namespace": "ml"},
            "spec": {
                "framework": "custom",
                "image": "any",
                "command": ["sh", "-c", command],
                "queue": "research",
                "roles": {"worker": {"replicas": 1, "resources": {"gpu": 1, "rdma": 1}}},
                "elasticity": {"strategy": "fixed"},
                "placement": {"devices": {"joint": ["gpu", "rdma"], "within": "pcie"}},
                "faults": {"keepFor": "1s"},
            },
        }
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    cluster = EmbeddedCluster(tmp_path)
    yield cluster
    cluster.shutdown(grace_s=0)


def start(cluster: Any, command: str = "sleep 600") -> Any:
    return submit(cluster, spec(command), run_id="run", step="submit", now=time.time())


class Dying:
    """A cluster that gives no answer from its n-th creation on."""

    def __init__(self, cluster: EmbeddedCluster, creations: int) -> None:
        self._cluster = cluster
        self._left = creations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def create(self, manifest: Any) -> Any:
        if self._left == 0:
            raise UnavailableError("gone")
        self._left -= 1
        return self._cluster.create(manifest)


@pytest.mark.parametrize("creations", [0, 1])
def test_whatever_was_created_is_found_and_made_whole(cluster: EmbeddedCluster, creations: int) -> None:
    """A submit that died anywhere is taken up by the next one; what the Job's pods need is the Job's."""
    with pytest.raises(UnavailableError):
        start(Dying(cluster, creations))
    assert len(cluster.list("Job")[0]) == creations
    assert cluster.list(CLAIM)[0] == []
    job = start(cluster)
    assert start(cluster)["metadata"]["uid"] == job["metadata"]["uid"]
    (claim,) = cluster.list(CLAIM)[0]
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Job", job["metadata"]["uid"])
    assert clean_up(cluster, job)
    assert cluster.list(CLAIM)[0] == []


def test_a_job_that_succeeded_takes_everything_along_when_its_time_is_over(cluster: EmbeddedCluster) -> None:
    """`keepFor` needs nobody who follows; it is counted from the end."""
    start(cluster, "true")
    version = cluster.list(CLAIM)[1]
    events = cluster.watch(CLAIM, resource_version=version, timeout_s=60)
    assert next(event.type for event in events if event.type in {"DELETED", "BOOKMARK"}) == "DELETED"
    assert cluster.list("Job")[0] == []
