# SPDX-License-Identifier: Apache-2.0
"""kfp-volcano simulate on Scenarios, and --until-broken."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner

from kfp_volcano.cli import main

SCENARIO = """
apiVersion: kfp-volcano/v1
kind: Scenario
metadata: {name: rush}
spec:
  until: 2h
  cluster: {nodes: [{count: 2, gpus: 4}]}
  loads:
    - name: day
      arrivals: {poisson: {perHour: 8}}
      jobs: [{name: r, gpus: [2, 4], duration: {lognormal: {median: 10m}}}]
"""


@pytest.fixture(name="scenario")
def _scenario(tmp_path):
    path = tmp_path / "rush.yaml"
    path.write_text(SCENARIO)
    return path


def run(*arguments):
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def test_a_scenario_is_replayed_and_its_seed_draws_another(scenario):
    """The document's own seed where none is given."""
    first, again, other = (
        json.loads(run(scenario, "--policy", "fifo", "--json", *seed).stdout) for seed in ([], [], ["--seed", "5"])
    )
    assert first == again
    assert first != other


def test_what_breaks_is_written_and_breaks_again(scenario, tmp_path):
    """With the load that holds and the one that breaks."""
    asked = [scenario, "--policy", "fifo", "--until-broken", "--promise", "wait=30m", "--promise", "share-wait=none"]
    found = json.loads(run(*asked, "--json", "-o", tmp_path / "out").stdout)["policies"]["fifo"]
    assert found["holds_at"] < found["breaks_at"]
    written = tmp_path / "out" / "fifo-broken.yaml"
    assert yaml.safe_load(written.read_text()) == found["document"]
    assert len(found["document"]["spec"]["jobs"]) < 40
    again = json.loads(run(written, *asked[1:], "--json").stdout)["policies"]["fifo"]
    assert again["breaks_at"] <= 1.0


def test_the_table_tells_what_a_policy_bears(scenario):
    """And what it does not."""
    found = run(scenario, "--policy", "fifo", "--until-broken", "--promise", "wait=30m").stdout
    assert "HOLDS AT LOAD" in found
    assert "fifo" in found


@pytest.mark.parametrize("promise", ["wait", "wait=soon", "patience=1h", "rho=many", "resizes-per-hour=1.5", "=", ""])
def test_what_is_no_promise_is_refused(scenario, promise):
    """With those that there are."""
    found = run(scenario, "--policy", "fifo", "--until-broken", "--promise", promise)
    assert found.exit_code == 2
    assert "is no promise" in found.output


def test_options_of_a_trace_are_no_options_of_a_scenario(scenario):
    """It says itself what they say."""
    found = run(scenario, "--policy", "fifo", "--load", "2")
    assert found.exit_code == 2
    assert "say it in the document" in found.output
