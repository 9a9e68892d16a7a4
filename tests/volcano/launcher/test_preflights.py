# SPDX-License-Identifier: Apache-2.0
"""Preflights that fail on real pods: the pod goes to another node, within bounds, or the step says why not."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import ForbiddenError, JobFailedError
from kfp_volcano.schemas import names, records
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher import preflights
from kfp_volcano.volcano.launcher.conclude import clean_up
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kfp_volcano.volcano.cluster.base import Manifest

GOOD = 'echo looking at "$KFP_VOLCANO_NODE"; [ "$KFP_VOLCANO_NODE" = node-2 ] || { echo no device; exit 3; }'
FIXED = {"strategy": "fixed"}
ELASTIC = {"strategy": "restart"}


def spec(check: str, elasticity: Any, **faults: Any) -> Any:
    """Two workers of one GPU, examined by a script, that say where they are."""
    preflight = {"command": ["sh", "-c", check], "unfitFor": "1h", **faults.pop("preflight", {})}
    return training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "checked", "namespace": "ml"},
            "spec": {
                "framework": "custom",
                "image": "any",
                "command": ["sh", "-c", 'echo training on "$KFP_VOLCANO_NODE"'],
                "queue": "research",
                "roles": {"worker": {"replicas": 2, "resources": {"gpu": 1}}},
                "elasticity": elasticity,
                "faults": {"preflight": preflight, **faults},
            },
        }
    )


class Run:
    """A submitted Job and what its follower says."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.lines: list[str] = []

    def follow(self, job: Any) -> str:
        """Submit and follow to the end."""
        self.ref = JobRef.of(submit(self.cluster, job, run_id="run", step="submit", now=time.time()))
        say = self.lines.append
        return follow(self.cluster, self.ref, holder="t:run", heir="run:run", last=True, clock=time.time, say=say)

    def moves(self) -> list[records.Move]:
        """What was written down on the Job."""
        return records.parse_list(records.Move, annotation(self.ref.read(self.cluster), names.MOVES))

    def marked(self) -> dict[str, records.Unfit]:
        """The marks on nodes."""
        nodes = self.cluster.list("Node", labels={names.UNFIT_LABEL: "true"})[0]
        marks = {node["metadata"]["name"]: annotation(node, names.UNFIT) or "" for node in nodes}
        return {name: records.parse(records.Unfit, text) for name, text in marks.items()}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """Three nodes of two GPUs."""
    cluster = EmbeddedCluster(tmp_path, nodes="3x2")
    yield cluster
    cluster.shutdown(grace_s=0)


@pytest.fixture
def run(cluster: EmbeddedCluster) -> Run:
    return Run(cluster)


@pytest.mark.parametrize(
    "elasticity", [ELASTIC, FIXED, {**FIXED, "evicted": "replace"}], ids=["elastic", "fixed", "fixed, replaced"]
)
def test_pods_leave_the_nodes_on_which_their_preflight_failed(run: Run, elasticity: Any) -> None:
    """They train on the one that is fit; the others are marked for a time, and the Job knows why."""
    faults = {"evicted": elasticity["evicted"]} if "evicted" in elasticity else {}
    strategy = {"strategy": elasticity["strategy"]}
    began = time.time()
    assert run.follow(spec(GOOD, strategy, retries=5, **faults)) == "done"
    assert {line.rpartition(" ")[2] for line in run.lines if "training on" in line} == {"node-2"}
    marks = run.marked()
    assert marks.keys() <= {"node-0", "node-1"}
    assert marks.keys() == {move.node for move in run.moves()}
    assert marks
    assert all(began + 3600 - 2 <= mark.until <= time.time() + 3600 for mark in marks.values())
    assert all((move.exit_code, move.message.splitlines()[-2]) == (3, "no device") for move in run.moves())


def test_how_often_pods_are_moved_is_bounded(run: Run) -> None:
    """A check that fails everywhere ends the Job, and names each node, the exit code and the last lines."""
    with pytest.raises(JobFailedError, match="may 1 times") as failed:
        run.follow(spec("echo no device; exit 3", ELASTIC, retries=1))
    for word in ("node-", "exit code 3", "no device"):
        assert word in str(failed.value)
    assert len(run.marked()) <= 1


def test_a_preflight_that_cannot_be_run_is_no_fault_of_a_node(run: Run) -> None:
    """No node is marked for a program that is not there."""
    with pytest.raises(JobFailedError, match="could not be run") as failed:
        run.follow(spec("no-such-program", ELASTIC))
    assert "exit code 127" in str(failed.value)
    assert run.marked() == {}


def test_without_the_right_to_mark_nodes_the_step_says_which_node_it_was(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Job ends once others that may have had their time."""

    class Unprivileged:
        def __getattr__(self, name: str) -> Any:
            return getattr(cluster, name)

        def patch(self, kind: str, *arguments: Any) -> Manifest:
            if kind == "Node":
                raise ForbiddenError("nodes is forbidden")
            return cluster.patch(kind, *arguments)

    monkeypatch.setattr(preflights, "OTHERS_S", 0.5)
    run = Run(Unprivileged())
    with pytest.raises(JobFailedError, match="nodes is forbidden") as failed:
        run.follow(spec(GOOD, ELASTIC, retries=20))
    assert "exit code 3" in str(failed.value)
    assert "no device" in str(failed.value)
    assert run.marked() == {}


def test_a_mark_goes_when_its_time_is_over(run: Run, cluster: EmbeddedCluster) -> None:
    """Whoever comes next takes it off, whatever became of its Job; what a person has set stays."""
    assert run.follow(spec(GOOD, ELASTIC, retries=5, preflight={"unfitFor": "1h"})) == "done"
    (node, *_) = run.marked()
    own = {"op": "add", "path": "/metadata/labels/kfp-volcano~1unfit", "value": "true"}
    cluster.patch("Node", "node-2", "", [own])
    clean_up(cluster, run.ref.read(cluster))
    mark = json.loads(annotation(cluster.get("Node", node), names.UNFIT) or "")
    preflights.release_expired(cluster, mark["until"] - 1)
    assert node in labelled(cluster)
    preflights.release_expired(cluster, mark["until"] + 3600)
    assert labelled(cluster) == {"node-2"}
    assert annotation(cluster.get("Node", node), names.UNFIT) is None


def labelled(cluster: EmbeddedCluster) -> set[str]:
    return {node["metadata"]["name"] for node in cluster.list("Node", labels={names.UNFIT_LABEL: "true"})[0]}
