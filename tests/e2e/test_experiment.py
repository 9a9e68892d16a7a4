# SPDX-License-Identifier: Apache-2.0
"""Experiments on this machine, as a user starts them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PIPELINE = """
from kfp import dsl
from kfp_volcano import compare_trainings

SPEC = {{
    "apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {{"name": "digits"}},
    "spec": {{
        "framework": "pytorch", "image": "i", "queue": "research",
        "command": ["python", "train.py", "--epochs", "3", "--seed", "{{seed}}"],
        "roles": {{"worker": {{"replicas": 1, "resources": {{"cpu": 1, "memory": "1Gi", "gpu": 1}}}}}},
        "elasticity": {{"strategy": "live", "batch": {{"global": 64}}, "grace": "30s"}},
        "checkpoint": {{"volume": "checkpoints"}},
    }},
}}
GROUPS = {{"one": {{}}, "two": {{"roles.worker.replicas": 2}}, "broken": {{"command": ["sh", "-c", "exit 3"]}}}}

@dsl.pipeline(name="p")
def pipeline():
    compare_trainings(SPEC, GROUPS, seeds=[0, 1], folder={folder!r})
"""


def test_groups_are_compared_and_one_that_fails_ends_nothing_else(
    start: Callable[..., Run], root: Path, tmp_path: Path
) -> None:
    """Equal batches make equal curves whatever the size, so that size shows no difference; the page tells it all."""
    file = tmp_path / "experiment.py"
    file.write_text(PIPELINE.format(folder=str(root / "pipelines" / "examples" / "digits")))
    run = start("--nodes", "1x4", pipeline=file)
    assert run.end() == 0, run.output()
    run.gone()
    verdict = (run.out / "comparison.md").read_text()
    by, low, high = map(float, re.search(r"in accuracy \((\S+), (\S+) to (\S+)\)", verdict).groups())
    assert low <= by <= high
    assert abs(by) < 0.02
    assert verdict.count("does not count") == 2
    assert "| two | 2 |" in verdict
    assert (run.out / "comparison.html").read_text().count("<svg") == 2
