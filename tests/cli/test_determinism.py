# SPDX-License-Identifier: Apache-2.0
"""What the commands print depends on what the files say, on nothing else."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfp_volcano.schemas.names import job_name
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.job import manifests
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml

GOLDEN = sorted((Path(__file__).resolve().parent.parent / "golden").glob("*.spec.yaml"))
BROKEN = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: a, labels: {"no label!": x, "nor this!": y}}
spec:
  framework: custom
  image: a:1
  queue: q
  env: {A: 1, B: 2, C: 3, D: 4, "1E": x, "2F": y}
  volumes: {v: {mount: x}, w: {mount: y}, u: {}}
  roles: {a: {replicas: x}, b: {replicas: y}, c: {}, worker: {replicas: {min: 4, max: 2}}}
"""
JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: a, labels: {x: "1", y: "2", z: "3"}}
spec:
  plugins: {svc: [], env: [], unknown: [], other: []}
  tasks:
  - {name: a, replicas: 2, template: {spec: {containers: [{name: c, image: "i:1", env: [{name: B}, {name: A}]}]}}}
  - {name: worker, replicas: 2, template: {spec: {containers: [{name: c, image: "i:1", stdin: true, tty: true}]}}}
"""
PROGRAM = """
import sys
from kfp_volcano.cli import main
for arguments in (["render", sys.argv[1]], ["validate", sys.argv[2]], ["convert", sys.argv[3]]):
    try:
        main(arguments)
    except SystemExit as end:
        print(end.code, flush=True)
"""


def shuffled(value: Any, chance: random.Random) -> Any:
    """The value with the keys of all its mappings in another order."""
    if isinstance(value, list):
        return [shuffled(part, chance) for part in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    chance.shuffle(keys)
    return {key: shuffled(value[key], chance) for key in keys}


def rendered(value: Any) -> str:
    """The manifests of a spec."""
    job = training_job(value)
    least = job.workers.replicas.min
    return manifest_yaml(manifests(job, name=job_name(job.name, "r"), run_id="r", step="s", workers=least))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name.split(".")[0])
def test_the_order_of_keys_changes_no_manifest(path: Path) -> None:
    """A mapping of YAML has no order: none of it shows in the bytes of a manifest."""
    value = yaml.safe_load(path.read_text())
    texts = {rendered(shuffled(value, random.Random(seed))) for seed in range(5)}
    assert texts == {rendered(value)}


def test_processes_of_any_hash_seed_print_the_same(root: Path, tmp_path: Path) -> None:
    """Manifests, problems of a broken spec, and converted jobs with their reports, byte by byte."""
    broken, job = tmp_path / "broken.yaml", tmp_path / "job.yaml"
    broken.write_text(BROKEN)
    job.write_text(JOB)
    spec = next(path for path in GOLDEN if path.name.startswith("roles"))
    outputs = [
        subprocess.run(  # this very Python
            [sys.executable, "-c", PROGRAM, spec, broken, job],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root / "src")},
            capture_output=True,
            check=True,
        )
        for seed in ("1", "2", "3")
    ]
    assert {(output.stdout, output.stderr) for output in outputs} == {(outputs[0].stdout, outputs[0].stderr)}
    assert b"problems in" in outputs[0].stderr
    assert b"no part of a TrainingJob" in outputs[0].stderr
