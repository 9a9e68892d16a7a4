# SPDX-License-Identifier: Apache-2.0
"""What `kfp-volcano search` refuses before anything begins."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kfp_volcano.cli import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorboardX") is None, reason="Ray Tune is not installed")

JOB = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: search}
spec:
  framework: pytorch
  image: registry.example/search:1.0
  command: [python, train.py]
  queue: research
  roles: {worker: {replicas: 1, resources: {cpu: 1, memory: 1Gi, gpu: 1}}}
  elasticity: {strategy: live, batch: {global: 4}}
  checkpoint: {volume: checkpoints}
"""


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ([], ["nothing to vary"]),
        (["env.LR=uniform(0,1)"], ["--trials", "say how many to draw"]),
        (["elasticity.batch.global=4,many"], ["spec.elasticity.batch.global", "many"]),
        (["elasticity.batch.global=4,many", "checkpoint.keep=0"], ["2 problems", "spec.checkpoint.keep"]),
        (["elasticity.strategy=live,restart"], ["spec.elasticity.strategy", "no other than live"]),
        (["queue.name=1,2"], ["--param queue.name", "no path"]),
    ],
    ids=["nothing", "no grid", "no number", "all at once", "no metrics", "no place"],
)
def test_what_cannot_be_searched_is_told_with_its_place(params: list[str], words: list[str], tmp_path: Path) -> None:
    """All of it at once, of whichever trial; nothing is written."""
    spec = tmp_path / "job.yaml"
    spec.write_text(JOB)
    options = [part for each in params for part in ("--param", each)]
    told = CliRunner().invoke(main, ["search", str(spec), "--local", "--out", str(tmp_path / "out"), *options])
    assert told.exit_code == 2, told.output
    for each in words:
        assert each in told.output
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]
