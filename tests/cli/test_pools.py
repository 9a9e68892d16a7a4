# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano pools …` and `kfp-volcano priority`: what goes where, and with which exit code."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from kfp_volcano.cli import main
from kfp_volcano.volcano.cluster import connect
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster

POOLS = """
apiVersion: kfp-volcano/v1
kind: GPUPools
metadata: {name: shared}
spec:
  pools:
    batch: {priorities: [batch], max: 4}
    interactive: {priorities: [interactive], min: 1, max: 2}
"""
JOB = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: notebook}
spec:
  framework: custom
  image: x
  command: [sleep, "600"]
  queue: default
  priority: interactive
  roles: {worker: {replicas: 1, resources: {profile: shared-gpu-notebook}}}
"""


def run(*arguments):
    """Run a command in this process."""
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.fixture(name="pools")
def _pools(tmp_path):
    path = tmp_path / "pools.yaml"
    path.write_text(POOLS)
    return path


@pytest.fixture(name="cluster")
def _cluster(tmp_path, monkeypatch):
    """The cluster that the commands reach."""
    cluster = EmbeddedCluster(tmp_path / "cluster", nodes="2x1@24Gi", workdir=tmp_path)
    monkeypatch.setattr(connect, "connect", lambda **_: cluster)
    yield cluster
    cluster.shutdown(grace_s=0)


@pytest.fixture(name="job")
def _job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.mark.parametrize("command", ["plan", "apply", "status"])
def test_every_command_teaches_and_tells_every_problem(command, pools):
    """An example in its help; exit code 2 with all problems, without a cluster; exit code 3 where there is none."""
    assert f"kfp-volcano pools {command} pools.yaml" in run("pools", command, "--help").stdout
    assert "KFP_VOLCANO_CLUSTER" in (none := run("pools", command, pools)).stderr
    assert none.exit_code == 3
    pools.write_text(POOLS.replace("max: 2", "max: 0").replace("[batch]", "[interactive]"))
    broken = run("pools", command, pools)
    assert broken.exit_code == 2
    assert "spec.pools.interactive.max" in broken.stderr
    assert "spec.pools.interactive.priorities[0]" in broken.stderr
    assert broken.stdout == ""


def test_apply_moves_what_plan_says_and_a_second_time_nothing(pools, cluster):
    """And status shows how pools stand."""
    planned = run("pools", "plan", pools)
    assert planned.stdout == (
        "  1. node-0 (1 GPU): spare -> interactive: interactive has 0 GPUs, less than its min of 1; the node is spare\n"
    )
    assert run("pools", "status", pools).stdout.splitlines()[-1].split() == ["(spare)", "2", "node-0,", "node-1"]
    applied = run("pools", "apply", pools)
    assert applied.exit_code == 0, applied.stderr
    assert "nodes moved: 1" in applied.stderr
    assert cluster.get("Node", "node-0")["metadata"]["labels"]["kfp-volcano/gpu-pool"] == "interactive"
    assert "nodes moved: 0" in run("pools", "apply", pools).stderr
    assert run("pools", "plan", pools).stdout == "nothing to move\n"
    rows = [row.split() for row in run("pools", "status", pools).stdout.splitlines()]
    assert rows[2] == ["interactive", "1", "1-2", "0%", "0", "node-0"]


def test_watch_looks_again_until_interrupted(pools, cluster, monkeypatch):
    """Nothing runs on after it."""
    looked = []

    def wait(_cluster, _since, *, timeout_s):
        looked.append(timeout_s)
        if len(looked) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("kfp_volcano.volcano.launcher.pools.wait", wait)
    result = run("pools", "apply", pools, "--watch", "--every", "5")
    assert result.exit_code == 130
    assert looked == [5.0, 5.0]
    assert result.stderr.count("nodes moved") == 2
    assert cluster.get("Node", "node-0")["metadata"]["labels"]["kfp-volcano/gpu-pool"] == "interactive"


def test_render_binds_a_job_to_the_pool_of_its_priority(pools, job, monkeypatch):
    """Where pools are given, by option or environment; else the manifest is as ever."""
    plain = run("render", job).stdout
    bound = run("render", job, "--pools", pools).stdout
    monkeypatch.setenv("KFP_VOLCANO_POOLS", str(pools))
    assert run("render", job).stdout == bound
    assert "gpu-pool" not in plain
    (task,) = yaml.safe_load(bound)["spec"]["tasks"]
    assert task["template"]["spec"]["nodeSelector"] == {"kfp-volcano/gpu-pool": "interactive"}
    pools.write_text("kind: GPUPools")
    assert run("render", job).exit_code == 2


def test_priority_says_what_it_reaches_and_is_done_once(job, cluster):
    """A second time there is nothing to do."""
    cluster.create(yaml.safe_load(run("render", job).stdout))
    (name,) = (each["metadata"]["name"] for each in cluster.list("Job")[0])
    result = run("priority", name, "batch")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"default/{name}: interactive -> batch"
    assert [line.split()[0] for line in lines[1:]] == ["changed", "changed", "stays"]
    assert cluster.get("Job", name, "default")["spec"]["priorityClassName"] == "batch"
    again = run("priority", f"default/{name}", "batch")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "already" in again.stderr


def test_priority_is_refused_with_a_reason(job, cluster):
    """Exit code 2 for a class that is not there, 3 for a Job that is not there or no cluster."""
    cluster.create(yaml.safe_load(run("render", job).stdout))
    (name,) = (each["metadata"]["name"] for each in cluster.list("Job")[0])
    refused = run("priority", name, "urgent")
    assert refused.exit_code == 2
    assert "deploy/priorities" in refused.stderr
    assert run("priority", "absent", "batch").exit_code == 3
