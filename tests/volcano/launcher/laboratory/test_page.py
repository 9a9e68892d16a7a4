# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison, and its files."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

from kfp_volcano.elastic.simulator.figures import figures
from kfp_volcano.elastic.simulator.outcome import Outcome
from kfp_volcano.elastic.simulator.verdicts import verdicts
from kfp_volcano.volcano.launcher.laboratory.contestants import Contestant
from kfp_volcano.volcano.launcher.laboratory.files import COLUMNS, write
from kfp_volcano.volcano.launcher.laboratory.page import page
from kfp_volcano.volcano.launcher.laboratory.study import Replicated, Study
from kfp_volcano.volcano.launcher.laboratory.sweep import axes, swept, variants
from outcomes import outcome, outcomes, scenario


def study(made: dict[str, Outcome] | None = None) -> Study:
    made = made or outcomes()
    return Study(
        scenario=scenario(), seed=0, outcomes=made, figures={name: figures(each) for name, each in made.items()}
    )


def whole() -> Study:
    """One with replications and settings tried out."""
    waits = {"fifo": (20.0, 25.0, 30.0), "adaptive": (5.0, 6.0, 7.0)}
    own = {name: tuple(figures(outcome(name, wait)) for wait in each) for name, each in waits.items()}
    given = axes(["threshold.up.idleShare=0.1,0.2"])
    made = variants([Contestant("threshold", "threshold")], given)
    return replace(
        study(),
        replicated=Replicated(count=3, how="drawn anew", figures=own, verdicts=verdicts(own)),
        swept=swept(given, "avg_jct", made, [own["fifo"], own["adaptive"]]),
    )


def test_the_page_tells_what_replications_and_settings_came_to() -> None:
    """The verdict in words, the means with their intervals, each setting with its figure and the best one marked."""
    text = page(whole())
    assert text == page(whole())
    assert "adaptive is better than fifo in avg JCT" in text
    assert "Means of 3 replications with their 95 % t-intervals; drawn anew." in text
    assert "avg JCT of the settings tried" in text
    assert "★ threshold (threshold.up.idleShare=0.2)" in text


def test_a_comparison_in_which_no_job_ends_has_a_page() -> None:
    """With the figures that there are."""
    one = outcome("p", 5.0)
    jobs = tuple(replace(job, ended_at=None, started_at=None, spans=(), done=0.0) for job in one.jobs)
    text = page(study({"p": replace(one, jobs=jobs, decided=())}))
    assert "4 jobs did not end" in text


def test_the_files_hold_all_jobs_and_figures(tmp_path: Path) -> None:
    """A CSV for each policy, JSON without NaN, the best Policy; twice into the same folder is the same."""
    made = whole()
    paths = write(tmp_path / "out", made, page(made))
    assert {path.name for path in paths} == {
        "report.html", "figures.json", "jobs-fifo.csv", "jobs-adaptive.csv", "best.yaml",
    }  # fmt: skip
    before = {path: path.read_bytes() for path in paths}
    assert write(tmp_path / "out", made, page(made)) == paths
    assert {path: path.read_bytes() for path in paths} == before
    with (tmp_path / "out" / "jobs-adaptive.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [float(row["jct_s"]) for row in rows] == [80.0, 85.0, 90.0, 95.0]
    told = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert told["policies"]["adaptive"]["avg_jct"] == 87.5
    assert told["replications"]["verdicts"][0]["better"] is True
    assert told["sweep"]["best"]["policy"]["spec"]["threshold"] == {"up": {"idleShare": 0.2}}
