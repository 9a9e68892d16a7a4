# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano simulate`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kfp_volcano.cli import main
from kfp_volcano.elastic.simulator.figures import figures
from kfp_volcano.elastic.simulator.resampling import resampled
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.volcano.launcher.laboratory.contestants import Contestant
from kfp_volcano.volcano.launcher.laboratory.running import compare
from outcomes import scenario

TRACE = """job_id,submission_time,duration,num_gpu
a,0,600,4
b,60,300,8
c,120,120,2
d,180,60,8
"""


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def ran(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def test_a_trace_is_replayed_and_table_story_and_files_come_of_it(trace: Path, tmp_path: Path) -> None:
    """Figures to standard output, what was written and assumed to standard error."""
    found = ran(trace, "--nodes", "1x8", "--policy", "fifo", "--policy", "tiresias", "-o", tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert "avg JCT" in found.stdout
    assert "The lowest average completion time is that of" in found.stdout
    assert "written" in found.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.html", "figures.json", "jobs-fifo.csv", "jobs-tiresias.csv",
    }  # fmt: skip


def test_json_holds_the_figures_and_nothing_else_is_printed(trace: Path) -> None:
    """For programs."""
    found = ran(trace, "--nodes", "1x8", "--policy", "fifo", "--json", "--limit", 2)
    told = json.loads(found.stdout)
    assert told["jobs"] == 2
    assert told["policies"]["fifo"]["not_ended"] == 0


def test_all_that_is_wrong_is_told_at_once(trace: Path) -> None:
    """Policies, options, settings and the trace itself; nothing is simulated."""
    trace.write_text(TRACE.replace("60,300,8", "60,long,8"))
    found = ran(
        trace, "--policy", "best", "--policy", "threshold", "--load", "0", "--format", "excel", "--nodes", "many",
        "--elastic", "3..2", "--best-by", "fun", "--sweep", "threshold.up.idelShare=1",
    )  # fmt: skip
    for said in ("--policy best", "--load", "--format", "--nodes", "--elastic", "--best-by", "line 3"):
        assert said in found.stderr, found.stderr
    assert found.exit_code == 2


def test_without_a_policy_or_a_trace_it_says_what_there_is(tmp_path: Path) -> None:
    """No traceback."""
    found = ran(tmp_path / "none.csv")
    assert found.exit_code == 2
    assert "fifo" in found.stderr
    assert "none.csv" in found.stderr


def test_replications_are_what_each_would_be_alone_in_the_order_of_their_seeds() -> None:
    """In other processes, as in this one."""
    given = scenario(12, gap_s=40.0)
    policies = [Contestant("fifo", "fifo"), Contestant("tiresias", "tiresias")]
    study = compare(given, policies, seed=5, replications=3)
    assert study.replicated is not None
    for name, found in study.replicated.figures.items():
        alone = [figures(simulate(resampled(given, seed), name, seed=seed)) for seed in (6, 7, 8)]
        assert list(found) == alone
    assert {each.against for each in study.replicated.verdicts} == {"fifo"}
