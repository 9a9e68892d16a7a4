# SPDX-License-Identifier: Apache-2.0
"""Arms compared by the Jobs that have ended."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kfp_volcano.cli import main
from kfp_volcano.volcano.launcher.comparison import LEAST, Ended, comparisons, ended_of
from kfp_volcano.volcano.launcher.comparison_told import told


def end(arm: str, job: int, hours: float = 1.0, **fields: Any) -> Ended:
    """A Job that succeeded."""
    kept = {"succeeded": True, "gpu_hours": 4 * hours, "resizes": 2.0, "loss": 0.5, "late": False}
    given = {"experiment": "compare", "arm": arm, "job": f"ml/{arm}-{job}", "jct_s": hours * 3600}
    return Ended(**{**kept, **given, **fields})


def test_an_interval_holds_the_difference_as_often_as_it_says() -> None:
    """On data made with a known one, in about 95 of 100 experiments: neither too wide nor too narrow."""
    rng = random.Random(7)
    hits = 0
    for _ in range(400):
        slow = [end("a", index, rng.gauss(2.0, 0.2)) for index in range(12)]
        fast = [end("b", index, rng.gauss(1.5, 0.6)) for index in range(8)]
        (found,) = comparisons([*slow, *fast])
        (difference,) = found.differences["completion time, h"]
        assert difference.low is not None
        assert difference.high is not None
        hits += difference.low <= -0.5 <= difference.high
    assert 366 <= hits <= 394


def test_nothing_is_said_of_a_difference_between_few() -> None:
    """However large it looks."""
    (found,) = comparisons([end("a", index, 9.0 + index) for index in range(LEAST)] + [end("b", 0), end("b", 1)])
    assert all(each.by is None for those in found.differences.values() for each in those)
    assert f"Too few Jobs to say anything of b: at least {LEAST} in each arm." in told(found)


def test_jobs_that_did_not_succeed_are_counted_and_not_averaged() -> None:
    """What was broken off took no time to complete."""
    ends = [end("a", index, 2.0 + index / 10) for index in range(6)] + [end("b", index, 2.0) for index in range(6)]
    (found,) = comparisons([*ends, end("b", 9, 0.01, succeeded=False)])
    assert found.arms == {"a": (6, 0), "b": (6, 1)}
    assert found.measures["completion time, h"]["b"].mean == 2.0


def test_a_job_counts_once_however_often_its_end_was_told() -> None:
    """By two autoscalers, one after the other."""
    (found,) = comparisons([end("a", 1, 1.0), end("a", 1, 3.0)])
    assert found.measures["completion time, h"]["a"].n == 1
    assert found.measures["completion time, h"]["a"].mean == 3.0


def test_several_arms_are_compared_with_the_first_of_the_policy() -> None:
    """At a level that holds for all of them together."""
    ends = [end(arm, index, 1.0 + index / 10) for arm in "abc" for index in range(6)]
    (found,) = comparisons(ends, {"compare": ["c", "a", "b"]})
    assert list(found.arms) == ["c", "a", "b"]
    assert [each.arm for each in found.differences["resizes"]] == ["a", "b"]
    assert found.level == pytest.approx(0.975)


def test_the_log_of_decisions_is_compared_by_the_command(tmp_path: Path) -> None:
    """Per experiment, in words or as JSON; where none has ended, that is an error."""
    log = tmp_path / "decisions-000001.jsonl"
    log.write_text('{"kind":"begin"}\n')
    nothing = CliRunner().invoke(main, ["autoscaler", "ab-report", "--decisions", str(tmp_path)])
    assert (nothing.exit_code, "no Job of an experiment" in nothing.stderr) == (2, True)
    arms = [{"name": "slow"}, {"name": "eager"}]
    policy = {"metadata": {"name": "compare"}, "spec": {"queues": ["*"], "arms": arms}}
    lines: list[dict[str, Any]] = [{"kind": "policy", "policy": "x", "document": policy}]
    for index in range(12):
        arm = ("slow", "eager")[index % 2]
        took = (7200 if arm == "slow" else 3600) + index
        figures = {"gpu_s": 8.0 * took, "resizes": 1, "loss": 0.1, "created_at": 0, "ended_at": took}
        ended = {"kind": "ended", "experiment": "compare", "arm": arm, "job": f"ml/{index}", "state": "Succeeded"}
        lines.append({**ended, **figures})
    log.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    shown = CliRunner().invoke(main, ["autoscaler", "ab-report", "--decisions", str(tmp_path)]).output.splitlines()
    assert shown[0] == "experiment compare: slow 6 Jobs, eager 6 Jobs"
    (row,) = [line for line in shown if line.startswith("completion time, h")]
    assert row.split("  ")[-1].strip().startswith("-1 [-1, -0.99")
    assert row.endswith("*")
    plain = CliRunner().invoke(main, ["autoscaler", "ab-report", "--decisions", str(tmp_path), "-o", "json"]).output
    assert json.loads(plain)[0]["arms"] == {"slow": [6, 0], "eager": [6, 0]}


def test_a_job_of_no_experiment_is_in_no_report() -> None:
    """Nor one that nobody saw run counted with GPU hours."""
    line = {"kind": "ended", "job": "ml/a", "state": "Succeeded", "created_at": 0, "ended_at": 9}
    assert ended_of(line) is None
    found = ended_of({**line, "experiment": "compare", "arm": "a"})
    assert found is not None
    assert (found.gpu_hours, found.late) == (None, True)
