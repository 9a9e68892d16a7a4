# SPDX-License-Identifier: Apache-2.0
"""The pipeline that tests a policy: what is compiled, and that it comes to a verdict on this machine."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kfp_volcano.pipelines.ir import compiled
from kfp_volcano.schemas.documents import parse
from kfp_volcano.schemas.policy_validation import policy
from kfp_volcano.schemas.scenario_validation import scenario

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="ir", scope="module")
def _ir(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(yaml.safe_load_all(compiled(root / "pipelines" / "policy_ab_test.py").text)))
    return found


def test_a_policy_is_put_in_force_only_where_it_was_accepted(ir: dict[str, Any]) -> None:
    """The write has the verdict for its condition, and nothing is answered from the cache."""
    tasks = ir["root"]["dag"]["tasks"]
    (gated,) = (task for name, task in tasks.items() if name != "compare-policies")
    assert "== 'accept'" in gated["triggerPolicy"]["condition"]
    inner = ir["components"][gated["componentRef"]["name"]]["dag"]["tasks"]["put-policy"]
    for task in (tasks["compare-policies"], inner):
        assert not task.get("cachingOptions", {}).get("enableCache")


def test_its_defaults_are_a_scenario_and_policies(ir: dict[str, Any]) -> None:
    """What the form is filled with can be run as it is."""
    given = {name: each.get("defaultValue") for name, each in ir["root"]["inputDefinitions"]["parameters"].items()}
    assert scenario(parse(given["scenario"])).loads
    assert policy(parse(given["candidate"])).name == "default"


@pytest.mark.slow
def test_here_a_better_policy_is_put_in_force(root: Path, tmp_path: Path) -> None:
    """Elastic jobs use more of a cluster than gangs of one size: surely accepted, and written for autoscalers."""
    out = tmp_path / "out"
    given = {"current": "fifo", "metric": "utilisation", "replications": "8"}
    parameters = [word for key, value in given.items() for word in ("--param", f"{key}={value}")]
    pipeline = str(root / "pipelines" / "policy_ab_test.py")
    command = [sys.executable, "-m", "kfp_volcano", "run", pipeline, "--local", "--out", str(out), *parameters]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    log = (out / "pipeline.log").read_text(encoding="utf-8")
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    assert "Accepted: candidate (default) is better than current (fifo) in utilisation" in log
    assert "default/default.yaml" in log
    assert "current (fifo), candidate (default)" in (out / "policies.html").read_text(encoding="utf-8")
