# SPDX-License-Identifier: Apache-2.0
"""kfp-volcano whatif: from what kubectl prints to who is concerned."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner

from kfp_volcano.cli import main
from kfp_volcano.schemas.names import GPU


def pod_spec(gpus):
    return {"containers": [{"name": "main", "resources": {"limits": {GPU: str(gpus)}}}]}


def job(name, gpus, phase, created):
    task = {"name": "main", "replicas": 1, "minAvailable": 1, "template": {"spec": pod_spec(gpus)}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": created},
        "spec": {"queue": "default", "minAvailable": 1, "tasks": [task]},
        "status": {"state": {"phase": phase}},
    }


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n0"},
    "spec": {},
    "status": {"allocatable": {GPU: "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
}
QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}, "spec": {}}
SPEC = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: digits, namespace: ml}
spec:
  framework: pytorch
  image: train
  command: [sleep, "600"]
  queue: default
  roles: {worker: {replicas: {min: 2, max: 4}, resources: {gpu: 1}}}
  checkpoint: {volume: checkpoints}
"""


@pytest.fixture(name="dump")
def _dump(tmp_path):
    """A node of four GPUs that are held for as long again as ten minutes, and a gang that waits for them."""
    items = [
        NODE,
        QUEUE,
        job("runs", 4, "Running", "2026-09-21T14:00:00Z"),
        job("waits", 4, "Pending", "2026-09-21T14:10:00Z"),
    ]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def run(dump, *arguments, code=0):
    result = CliRunner().invoke(main, ["whatif", "--dump", str(dump), "--policy-now", "fifo", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_without_a_change_it_is_a_forecast(dump):
    """Of every job: when it starts and ends; what was assumed is said."""
    found = run(dump)
    assert "ml/runs" in found.stdout
    assert "STARTS IN" in found.stdout
    assert "2 jobs do not report progress" in found.stderr


def test_more_nodes_concern_whom_they_concern(dump):
    """As JSON: before and after, job by job."""
    found = json.loads(run(dump, "--add-nodes", "1", "-o", "json").stdout)
    assert found["gpus"] == [4, 8]
    by_name = {each["job"]: each for each in found["jobs"]}
    assert not by_name["ml/runs"]["differs"]
    assert by_name["ml/waits"]["before"]["starts_s"] >= 600
    assert by_name["ml/waits"]["after"]["starts_s"] <= 60
    assert found["figures"]["after"]["avg_wait"] < found["figures"]["before"]["avg_wait"]


def test_one_more_job_is_seen_among_the_others(dump, tmp_path):
    """With the size and the time that it takes."""
    spec = tmp_path / "job.yaml"
    spec.write_text(SPEC)
    found = json.loads(run(dump, "--job", str(spec), "--job-takes", "30m", "-o", "json").stdout)
    new = next(each for each in found["jobs"] if each["before"] is None)
    assert new["job"].startswith("ml/digits")
    assert new["after"]["gpus"] == [4]
    assert 1800 <= new["after"]["ends_s"] - new["after"]["starts_s"] < 2000


def test_the_table_names_who_is_concerned_and_the_sums(dump):
    """Of the others it tells the number only."""
    found = run(dump, "--add-gpus", "4").stdout
    assert "ml/waits" in found
    assert "ml/runs" not in found
    assert "1 of 2 jobs are concerned" in found
    assert "ml/runs" in run(dump, "--add-gpus", "4", "--all").stdout


def test_what_is_wrong_is_told_at_once_and_yaml_does_as_well(dump, tmp_path):
    """Of all options; kubectl prints YAML too."""
    result = CliRunner().invoke(main, ["whatif", "--dump", str(dump), "--add-nodes", "x", "--quota", "y"])
    assert "2 problems" in result.output
    (tmp_path / "dump.yaml").write_text(yaml.safe_dump(json.loads(dump.read_text())))
    assert run(tmp_path / "dump.yaml").stdout == run(dump).stdout


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--add-nodes", "many"], "says no number"),
        (["--add-gpus", "0"], "says no number"),
        (["--quota", "research"], "is no quota"),
        (["--quota", "research=8"], "there is no queue research"),
        (["--policy", "nix"], "there is no such policy"),
        (["--job", "gone.yaml"], "cannot be read"),
        (["--nodes", "4"], "are no nodes"),
        (["--dump", "gone.json"], "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(dump, arguments, what):
    """In words, with the exit code of wrong input."""
    result = CliRunner().invoke(main, ["whatif", "--dump", str(dump), "--policy-now", "fifo", *arguments])
    assert result.exit_code == 2
    assert what in result.output
