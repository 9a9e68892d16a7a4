# SPDX-License-Identifier: Apache-2.0
"""A policy test's verdict: when a candidate is accepted, and what is refused before anything is simulated."""

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.elastic.simulator.verdicts import Interval, Verdict
from kfp_volcano.volcano.launcher.policy_test_steps import Asked, accepted, compare_step

JOBS = """
apiVersion: kfp-volcano/v1
kind: Scenario
metadata: {name: two}
spec:
  cluster: {nodes: [{count: 1, gpus: 4}]}
  jobs: [{name: a, gpus: 2, duration: 10m}]
"""


def verdict(mean: float, p: float, metric: str = "avg_jct") -> Verdict:
    """Of twenty pairs."""
    change = Interval(mean, mean - 0.01, mean + 0.01)
    return Verdict(metric=metric, policy="candidate", against="current", pairs=20, change=change, p=p)


@pytest.mark.parametrize(
    ("given", "least", "expected"),
    [
        (verdict(-0.08, 0.01), 5.0, True),
        (verdict(-0.08, 0.2), 5.0, False),
        (verdict(-0.04, 0.01), 5.0, False),
        (verdict(0.08, 0.01), 5.0, False),
        (verdict(0.08, 0.01, "goodput"), 5.0, True),
        (verdict(-0.08, 0.01, "goodput"), 0.0, False),
        (Verdict(metric="avg_jct", policy="a", against="b", pairs=1), 0.0, False),
    ],
)
def test_a_candidate_has_to_be_better_by_enough_and_surely(given: Verdict, least: float, *, expected: bool) -> None:
    """Less of a time, more of goodput; what is not significant is no reason to change anything."""
    assert accepted(given, least) is expected


def test_all_that_is_wrong_is_told_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    """Metric, gain, replications, policies and scenario; a scheduler of the literature is none that can be had."""
    asked = Asked(
        scenario=JOBS.replace("gpus: 2", "gpus: -2"), current="best", candidate="tiresias", metric="speed",
        least_gain=float("nan"), replications=1, seed=0,
    )  # fmt: skip
    with pytest.raises(SystemExit):
        compare_step(asked, page=str(tmp_path / "page"), summary=str(tmp_path / "summary"))
    told = capsys.readouterr().err
    for place in ("metric", "least_gain", "replications", "current", "candidate", "jobs[0].gpus"):
        assert place in told
    assert list(tmp_path.iterdir()) == []
