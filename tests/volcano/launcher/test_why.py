# SPDX-License-Identifier: Apache-2.0
"""Why a Job has the size it has: from logs, results and what is written on it."""

from __future__ import annotations

import json
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kfp_volcano.cli import main
from kfp_volcano.elastic.autoscaler.decisions.decision_log import DecisionLog
from kfp_volcano.elastic.autoscaler.telling.recorder import JobEnd
from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.policies.snapshot import ElasticJob, NodeState, PendingGang, QueueSnapshot
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.policy import DEFAULT
from kfp_volcano.schemas.records import Phase, ResizeOutcome
from kfp_volcano.volcano.launcher.why import find_job, why_recorded
from kfp_volcano.volcano.launcher.why_told import told
from told import class_change

AT = 1_790_000_000.0
JOB = "vision/digits-1a2b3c4d"


def queue(workers: int, at: float, *, gang: int = 0, **fields: Any) -> QueueSnapshot:
    """Eight GPUs, the Job on some of them, and perhaps a gang that waits."""
    size = {"min_workers": 2, "max_workers": 8, "sizes": (2, 4, 8), "gpus_per_worker": 1}
    job = ElasticJob(key=JOB, workers=workers, running=workers, nodes=("n",) * workers, **{**size, **fields})
    free = 8 - workers
    gangs = (PendingGang(key="speech/acoustic", pods=(1,) * gang, since=at),) if gang else ()
    kept = {"limit_gpus": 8, "allocated_gpus": workers, "nodes": {"n": NodeState(free=free)}, "pending": gangs}
    return QueueSnapshot(queue="research", at=at, jobs=(job,), **kept)


def outcome(request: str, before: int, after: int, at: float, **fields: Any) -> ResizeOutcome:
    """A resize that is done."""
    kept = {"reason": "QueueIdle", "explanation": "", "requested_at": at, "executed_by": "x", "done_at": at + 7.4}
    return ResizeOutcome(id=request, from_workers=before, to_workers=after, **{"phase": Phase.DONE, **kept, **fields})


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Path:
    """A run's folder: the Job grew into the idle queue, gave half of it to a gang, and ended."""
    folder = tmp_path / "demo-run" / "volumes" / "checkpoints" / "digits-1a2b3c4d"
    log = DecisionLog(folder, policies=lambda _: DEFAULT, by="sidecar", clock=lambda: AT)
    for snapshot, request in (
        (queue(2, AT), "r1"),
        (queue(8, AT + 30, last_resize_at=AT + 7.4), ""),
        (queue(8, AT + 60, gang=4), "r2"),
        (queue(4, AT + 90), ""),
        (queue(4, AT + 100, last_resize_at=AT + 67.4), ""),
    ):
        decisions = policy_for(DEFAULT).decide(snapshot)
        log.decided(snapshot, decisions, {JOB: request} if request else {}, lag_s=0.0)
    log.resized("research", JOB, outcome("r1", 2, 8, AT, pause_s=0.9, steps_lost=1))
    log.resized("research", JOB, outcome("r2", 8, 4, AT + 60, phase=Phase.ROLLED_BACK, message="no node"))
    log.resized("research", JOB, outcome("p1", 4, 2, AT + 95, reason="Override", explanation="the demo is over"))
    log.reranked("research", JOB, class_change(at=AT + 80))
    log.ended("research", JobEnd(job=JOB, state="Succeeded", created_at=AT - 5, ended_at=AT + 200))
    log.close()
    return tmp_path / "demo-run"


def test_each_change_is_told_with_its_reason_its_end_and_its_cost(run: Path) -> None:
    """By the name of the TrainingJob, and in words."""
    lines = told(why_recorded(run, "digits"), timezone.utc)
    assert lines == [
        "vision/digits-1a2b3c4d in queue research, 2026-09-21",
        "",
        "14:13:20  began with 2 workers",
        "14:13:20  2 -> 8 workers   QueueIdle",
        "          6 of the queue's 8 GPUs are idle and no gang waits: digits-1a2b3c4d grows from 2 to 8 workers",
        "          asked for by the autoscaler (sidecar), policy threshold",
        "          done after 7.4 s; training paused for 0.90 s and lost 1 step",
        "          numbers: idle gpus 6, limit gpus 8",
        "14:14:20  8 -> 4 workers   GangPending",
        "          acoustic waits for 4 GPUs: digits-1a2b3c4d gives 4 and shrinks from 8 to 4 workers",
        "          asked for by the autoscaler (sidecar), policy threshold",
        "          came to nothing, and was taken back: no node",
        "          numbers: gang gpus 4, given gpus 4",
        "14:14:40  batch-low -> batch   WaitedLong",
        "          digits has waited for 45 min",
        "          changed by autoscaler",
        "14:14:55  4 -> 2 workers   Override",
        "          the demo is over",
        "          asked for by a person",
        "          done after 7.4 s",
        "",
        "14:16:40  It has ended: Succeeded.",
        "14:15:00  Last decided: it had 4 workers, for Cooldown",
        "          digits-1a2b3c4d was resized a short time ago: it may be resized again in 27 s",
    ]


def test_a_job_began_when_the_first_of_several_autoscalers_saw_it(run: Path) -> None:
    """Each Job has one beside it, and each of them logs all Jobs of the queue: in whatever order their folders come."""
    for name, at in (("a-3c4d5e6f", AT + 15), ("z-4d5e6f7a", AT - 3)):
        folder = run / "volumes" / "checkpoints" / name
        log = DecisionLog(folder, policies=lambda _: DEFAULT, by="sidecar", clock=lambda: AT)
        snapshot = queue(4, at)
        log.decided(snapshot, policy_for(DEFAULT).decide(snapshot), {}, lag_s=0.0)
        log.close()
    why = why_recorded(run, JOB)
    assert (why.began_at, why.began_with) == (AT - 3, 4)


def test_what_a_run_measured_afterwards_is_told_instead(run: Path) -> None:
    """The ledgers of the workers know a pause better than anybody who looked on."""
    resize = {"id": "r1", "phase": "Done", "from": 2, "to": 8, "reason": "QueueIdle", "explanation": "", "message": ""}
    times = {"requested_at": AT, "done_at": AT + 7.4, "pause_s": 0.21, "steps_lost": 0}
    (run / "result.json").write_text(json.dumps({"job": JOB, "resizes": [{**resize, **times}]}))
    assert any("training paused for 0.21 s and lost no step" in line for line in told(why_recorded(run, JOB)))


@pytest.mark.parametrize(
    ("asked", "found"),
    [("ml/a-12", "ml/a-12"), ("a-12", "ml/a-12"), ("a", "ml/a-12"), ("ml/a", "ml/a-12"), ("b-1", None), ("c", None)],
)
def test_a_job_is_found_by_what_people_call_it(asked: str, found: str | None) -> None:
    """One that may be several, or none, is told with what there is."""
    known = ["ml/a-12", "ml/b-1", "x/b-1"]
    if found:
        assert find_job(asked, known) == found
    else:
        with pytest.raises(SpecError, match="ml/b-1"):
            find_job(asked, known)


def test_the_command_finds_the_last_run_by_itself(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder in which the demo leaves it."""
    monkeypatch.chdir(run.parent)
    result = CliRunner().invoke(main, ["autoscaler", "explain", "digits"])
    assert result.exit_code == 0, result.output
    assert "2 -> 8 workers   QueueIdle" in result.output
    result = CliRunner().invoke(main, ["autoscaler", "explain", "resnet"])
    assert result.exit_code == 2
    assert "--decisions DIR" in result.stderr


def test_a_log_is_replayed_by_the_command(run: Path) -> None:
    """0 where all is the same, 1 and the differences where it is not."""
    result = CliRunner().invoke(main, ["autoscaler", "replay", str(run)])
    assert (result.exit_code, result.output) == (0, "5 decisions in 5 turns, all the same\n")
    (log,) = run.rglob("decisions-*.jsonl")
    log.write_text(log.read_text().replace('"free":6', '"free":1'))
    result = CliRunner().invoke(main, ["autoscaler", "replay", str(run)])
    assert result.exit_code == 1
    assert "logged   2 -> 8 QueueIdle (threshold)" in result.output
    assert "now      2 -> 2 Steady (threshold)" in result.output


@pytest.mark.parametrize(
    "command",
    [["replay"], ["explain", JOB, "--decisions"], ["explain", "digits", "--decisions"], ["ab-report", "--decisions"]],
)
@pytest.mark.parametrize(
    "line",
    [
        {"kind": "turn", "queue": "research", "whole": True, "policy": "p"},
        {"kind": "turn", "queue": "research", "whole": True, "policy": "p", "seen": {"at": "noon"}, "decided": [{}]},
        {"kind": "turn", "queue": "research", "whole": True, "policy": "p", "seen": [JOB], "decided": None},
        {"kind": "policy", "policy": "p"},
        {"kind": "ended", "job": JOB, "arm": "eager"},
        {"kind": "resized", "job": JOB, "outcome": {"phase": "Lost"}},
        {"said": {"kind": "ended"}, "of": JOB},
    ],
)
def test_a_log_that_somebody_has_changed_is_told_as_that(
    tmp_path: Path, line: dict[str, Any], command: list[str]
) -> None:
    """Whichever command reads it, and whatever is wrong with a line; what is no line of a log is passed over."""
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in ({"kind": "begin", "at": AT}, line))
    (tmp_path / "decisions-000001.jsonl").write_text(text)
    result = CliRunner().invoke(main, ["autoscaler", *command, str(tmp_path)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in {0, 2}
    assert result.exit_code == 0 or result.stderr.startswith("error: ")
