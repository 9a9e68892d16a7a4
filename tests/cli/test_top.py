# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano top`: what is shown of queues, Jobs and decisions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kfp_volcano.cli import main
from kfp_volcano.cli import top as cli_top
from kfp_volcano.elastic.autoscaler.observing.view import ClusterView
from kfp_volcano.volcano.cluster import connect
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster

REPLICAS = {"min": 2, "max": 6, "initial": 2, "sizes": [2, 4, 6]}
JOB = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "train"},
    "spec": {
        "framework": "custom",
        "image": "x",
        "command": ["sleep", "600"],
        "queue": "research",
        "roles": {"worker": {"replicas": REPLICAS, "resources": {"cpu": 1, "gpu": 1}}},
        "elasticity": {"strategy": "restart"},
    },
}


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    """The cluster that the commands reach."""
    cluster = EmbeddedCluster(tmp_path / "cluster", nodes="2x4", workdir=tmp_path, queues=("default", "research"))
    monkeypatch.setattr(connect, "connect", lambda **_: cluster)
    yield cluster
    cluster.shutdown(grace_s=0)


@pytest.fixture(name="job")
def _job(cluster: EmbeddedCluster, tmp_path: Path) -> str:
    """A Job that runs with four workers, since a person wanted that."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(JOB))
    done = CliRunner().invoke(main, ["jobs", "submit", str(path), "--run-id", "one", "--detach"])
    name = done.stdout.strip()
    assert CliRunner().invoke(main, ["resize", name, "--workers", "4", "--for", "2h", "--why", "a demo"]).exit_code == 0
    return name


def test_how_things_stand_is_printed_once(job: str) -> None:
    """Queues, Jobs and what was decided."""
    result = CliRunner().invoke(main, ["top", "--once", "--queue", "research"])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert ["research", "4/8", "-", "4", "1", "-"] in lines or ["research", "4/8", "8", "4", "1", "-"] in lines
    (row,) = [line for line in lines if line[:2] == [job, "research"]]
    assert row[2:6] == ["Running", "4/4", "2-6", "4"]
    (decided,) = [" ".join(line) for line in lines if "Override" in line]
    assert f"{job} 2 -> 4 Override done in" in decided
    assert decided.endswith("a demo")


def test_what_changes_is_a_line_each(job: str, cluster: EmbeddedCluster) -> None:
    """And nothing is said of what stays, though it grows older."""
    view = ClusterView(cluster)
    view.start()
    try:
        before = cli_top._rows(cli_top._picture(view, ("research",)))
        told = list(cli_top._news({}, before))
        assert len(told) == 3
        assert told[0].startswith("queue   research  4/8")
        assert f"job     {job}  research  Running  4/4" in told[1]
        assert list(cli_top._news(before, cli_top._rows(cli_top._picture(view, ("research",))))) == []
        cluster.delete("Job", job.partition("/")[2], "default")
        version, rows = 0, before
        while ("job", job) in rows:
            version = view.wait(version, timeout_s=5.0)
            rows = cli_top._rows(cli_top._picture(view, ("research",)))
        assert f"job     {job}  is gone" in set(cli_top._news(before, rows))
    finally:
        view.stop()
