# SPDX-License-Identifier: Apache-2.0
"""An elastic run whose loss leaps up, as its user sees it afterwards."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kfp_volcano.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PIPELINE = """
from kfp import dsl
from kfp_volcano import elastic_training

SPEC = {{
    "apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {{"name": "spiky"}},
    "spec": {{
        "framework": "pytorch", "image": "i", "queue": "research",
        "command": ["python", "-c", "import runpy; runpy.run_path('poisoned.py', {{'PACE': 0.5, 'EPOCHS': 11}})"],
        "roles": {{"worker": {{"replicas": {{"min": 1, "max": 3, "initial": 1}}, "resources": {{"gpu": 1}}}}}},
        "elasticity": {{"strategy": "live", "batch": {{"global": 10}}, "cooldown": "3s", "grace": "10s"}},
        "checkpoint": {{"volume": "checkpoints", "every": "1h", "keep": 5}},
        "monitor": {{
            "loss": {{"spike": 3.0, "window": 20, "steps": 3, "then": "rollback"}},
            "rollback": {{"limit": 3, "then": "skip"}},
        }},
    }},
}}

@dsl.pipeline(name="spike")
def spike():
    elastic_training(SPEC, rounds=2, folder={folder!r})
"""


def test_a_loss_that_leaps_up_is_seen_rolled_back_and_explained(
    start: Callable[..., Run], root: Path, tmp_path: Path
) -> None:
    """By the figures, the page, `trace` and the log; what the rollback took back is not charged to the resizes."""
    file = tmp_path / "pipeline.py"
    file.write_text(PIPELINE.format(folder=str(root / "tests" / "elastic" / "runtime")))
    run = start("--nodes", "1x3", pipeline=file)
    assert run.end() == 0, run.output()
    result = run.result()
    assert (result["state"], result["duplicates"], result["missing"]) == ("Succeeded", 0, 0)
    assert result["resizes"][0]["to"] == 3
    assert result["taken_back"] > 0
    assert result["steps_lost"] == sum(each["steps_lost"] for each in result["resizes"]) == 0
    assert result["skipped"] > 0
    assert {each["batch"] for each in result["batches"]} == {10}

    kinds = [entry["kind"] for entry in result["trace"]]
    seen = kinds.index("LossSpike")
    assert kinds[seen : seen + 3] == ["LossSpike", "RolledBack", "BatchesSkipped"]
    saw = result["trace"][seen]["what"]
    assert re.fullmatch(r"the loss of step \d+ is \S+, the last of 3 in a row: above \S+, where \S+ was usual .*", saw)

    told = CliRunner().invoke(main, ["trace", str(run.out)]).output
    page = (run.out / "report.html").read_text()
    back = result["trace"][seen + 1]["what"]
    for text in (told, page):
        assert saw in text
        assert back in text
    assert "Resize (" in told
    assert f"Training saw that {saw}; it went {back}" in page
    log = (run.out / "pipeline.log").read_text()
    assert f"LossSpike: {saw}" in log
    assert f"RolledBack: {back}" in log
