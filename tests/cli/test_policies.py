# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano autoscaler policies`: what is wrong with Policies, and which queue gets which."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from kfp_volcano.cli import main

TEXT = """\
apiVersion: kfp-volcano/v1
kind: Policy
metadata: {name: careful}
spec: {queues: [research, "vision-*"], threshold: {up: {idleShare: 0.75}}}
---
apiVersion: kfp-volcano/v1
kind: Policy
metadata: {name: compare}
spec:
  queues: [vision-lab]
  arms:
    - {name: control}
    - {name: eager, threshold: {up: {idleShare: 0.1}}}
"""


def run(path: Path, *options: str) -> Result:
    """The command on a file."""
    return CliRunner().invoke(main, ["autoscaler", "policies", str(path), *options])


def test_which_queue_gets_which_policy_is_printed(tmp_path: Path) -> None:
    """By patterns, or by the names of queues that one asks for."""
    path = tmp_path / "policies.yaml"
    path.write_text(TEXT)
    assert "research, vision-*  careful  threshold" in run(path).output
    lines = run(path, "--queue", "vision-lab", "--queue", "vision-x", "--queue", "speech").output.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["vision-lab", "compare"],
        ["vision-x", "careful"],
        ["speech", "default"],
    ]
    assert "an experiment: control: threshold, eager: threshold" in lines[1]


def test_a_wrong_file_ends_with_2_and_all_that_is_wrong(tmp_path: Path) -> None:
    """On standard error, and nothing on standard output."""
    path = tmp_path / "policies.yaml"
    path.write_text(TEXT.replace("0.75", "7").replace("eager", "control"))
    result = run(path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "document 1: spec.threshold.up.idleShare: 7 is too large (at most 1)" in result.stderr
    assert "document 2: spec.arms[1].name: control is the name of arms[0] too" in result.stderr
