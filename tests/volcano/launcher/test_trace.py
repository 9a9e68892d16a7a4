# SPDX-License-Identifier: Apache-2.0
"""The story of a Job: what was asked, what was seen, and how training went around it."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from kfp_volcano.elastic import ledger
from kfp_volcano.errors import NotFoundError, SpecError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.events import Event, Kind, to_line
from kfp_volcano.schemas.records import ClassChange, Hold, Phase, ResizeOutcome, StepRecord, dump
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import update_annotation
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.folder import job_folder
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.submit import submit
from kfp_volcano.volcano.launcher.trace import as_json, trace, trace_on_cluster, trace_recorded
from kfp_volcano.volcano.launcher.trace_told import told

if TYPE_CHECKING:
    from pathlib import Path

START = 1_760_000_000.0


def ledgers() -> dict[str, list[str]]:
    """Forty steps of 8 samples: two a second by two workers, then four a second by four, and a loss that drops."""
    lines, lineage, at = [], ledger.genesis(seed=0, size=320, batch=8, epochs=1), START
    for step in range(40):
        at += 0.5 if step < 20 else 0.25
        attempt = ledger.attempt_digest(lineage, "group", step)
        after = ledger.lineage_digest(lineage, attempt)
        commit = ledger.Commit(
            attempt=attempt,
            step=step,
            epoch=0,
            parent=lineage,
            lineage=after,
            world=2 if step < 20 else 4,
            loss=math.nan if step == 39 else (2.0 if step < 20 else 1.0),
            samples=8 * (step + 1),
            time=at,
        )
        lines.append(ledger.to_line(commit))
        lineage = after
    return {"w-0.jsonl": lines}


def annotations() -> dict[str, str]:
    resize = ResizeOutcome(
        id="r1",
        phase=Phase.DONE,
        from_workers=2,
        to_workers=4,
        reason="QueueIdle",
        explanation="two GPUs are idle",
        requested_at=START + 9.9,
        executed_by="resize-1",
        done_at=START + 10.1,
    )
    change = ClassChange(
        from_class="low", to_class="high", reason="WaitedLong", explanation="45 min", by="autoscaler", at=START + 1
    )
    step = StepRecord(name="train-1", attempt=2, outcome="Resized", started_at=START - 1)
    hold = Hold(until=START + 500, by="ada", override=4, reason="a demo")
    return {
        names.RESIZE: dump([resize]),
        names.CLASSES: dump([change]),
        names.STEPS: dump([step]),
        names.HOLD: dump(hold),
    }


def events() -> dict[str, list[str]]:
    seen = Event(kind=Kind.LOSS_SPIKE, time=START + 14, message="the loss is high", step=36, samples=288)
    back = Event(kind=Kind.ROLLED_BACK, time=START + 14.1, message="back to step 30", facts={"why": "the loss is high"})
    started = Event(kind=Kind.LEFT, time=START + 16, message="left")
    return {"w-0.jsonl": [to_line(each) for each in (started, seen, back)], "w-1.jsonl": ["torn"]}


def test_everything_stands_in_the_order_of_time_with_who_and_why() -> None:
    """Of the Job, its steps, people and workers alike."""
    found = trace(annotations(), events(), ledgers())
    assert [(each.kind, each.who) for each in found] == [
        ("Step", "train-1"),
        ("PriorityClass", "autoscaler"),
        ("Resize", "resize-1"),
        ("LossSpike", "w-0"),
        ("RolledBack", "w-0"),
        ("Left", "w-0"),
        ("Hold", "ada"),
    ]
    assert found[2].why == "QueueIdle: two GPUs are idle"
    assert found[4].why == "the loss is high"


def test_a_change_is_told_with_how_training_went_before_and_after() -> None:
    """Mean loss, throughput by the clock and workers of the steps on either side; NaN is left out of a mean."""
    resize = next(each for each in trace(annotations(), {}, ledgers()) if each.kind == "Resize")
    assert resize.before is not None
    assert resize.after is not None
    assert (resize.before.steps, resize.before.loss, resize.before.workers) == (19, 2.0, 2)
    assert resize.before.throughput == pytest.approx(16.0)
    assert (resize.after.loss, resize.after.workers) == (1.0, 4)
    assert resize.after.throughput == pytest.approx(32.0)
    left = next(each for each in trace({}, events(), ledgers()) if each.kind == "Left")
    assert (left.before, left.after) == (None, None)


def test_it_is_the_same_from_a_result_and_from_a_jobs_own_folder(tmp_path: Path) -> None:
    """After the fact from the report's folder, while it runs from the volume; a folder without either is said."""
    report = tmp_path / "report"
    report.mkdir()
    found = trace(annotations(), events(), ledgers())
    (report / "result.json").write_text(json.dumps({"job": "vision/digits-1a2b", "trace": as_json(found)}))
    assert trace_recorded(report) == ("vision/digits-1a2b", found)
    assert trace_recorded(tmp_path, "vision/digits") == ("vision/digits-1a2b", found)

    job = tmp_path / "volumes" / "other-3c4d"
    for folder, files in (("events", events()), ("ledger", ledgers())):
        (job / folder).mkdir(parents=True)
        for name, lines in files.items():
            (job / folder / name).write_text("".join(lines))
    name, found = trace_recorded(tmp_path, "other")
    assert (name, [each.kind for each in found]) == ("other-3c4d", ["LossSpike", "RolledBack", "Left"])
    assert trace_recorded(job) == (name, found)
    with pytest.raises(SpecError, match="no ledger"):
        trace_recorded(tmp_path, "third")


def test_a_job_that_is_there_tells_its_story(tmp_path: Path) -> None:
    """From its annotations and, where its volume is mounted, from what its workers wrote; a Job that is not is said."""
    cluster = EmbeddedCluster(tmp_path / "cluster")
    try:
        spec = training_job({
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "digits", "namespace": "ml"},
            "spec": {
                "framework": "pytorch",
                "image": "any",
                "command": ["sleep", "600"],
                "queue": "research",
                "roles": {"worker": {"replicas": 1, "resources": {"cpu": 1}}},
                "elasticity": {"strategy": "live", "batch": {"global": 8}},
                "checkpoint": {"volume": "files"},
            },
        })  # fmt: skip
        job = submit(cluster, spec, run_id="run", step="submit", now=START)
        reference = JobRef.of(job)
        step = StepRecord(name="train-1", attempt=1, outcome="Running", started_at=START)
        update_annotation(cluster, "Job", reference.name, reference.namespace, names.STEPS, lambda _: dump([step]))
        assert [each.kind for each in trace_on_cluster(cluster, reference)] == ["Step"]
        folder = job_folder(cluster, job)
        assert folder is not None
        (folder / "events").mkdir(parents=True)
        (folder / "events" / "w-0.jsonl").write_text("".join(events()["w-0.jsonl"]))
        assert [each.kind for each in trace_on_cluster(cluster, reference)] == [
            "Step",
            "LossSpike",
            "RolledBack",
            "Left",
        ]
        with pytest.raises(NotFoundError, match="there is no Job ml/other"):
            trace_on_cluster(cluster, JobRef("ml", "other"))
    finally:
        cluster.shutdown(grace_s=0)


def test_the_text_has_a_line_for_each_entry_with_its_reason_below() -> None:
    """And what training did after it."""
    lines = list(told("digits", trace(annotations(), events(), ledgers())))
    assert lines[0] == "digits, 2025-10-09 UTC"
    at = next(index for index, line in enumerate(lines) if "Resize (resize-1)" in line)
    assert lines[at].endswith("2 → 4 workers: Done")
    assert lines[at + 1].strip() == "because: QueueIdle: two GPUs are idle"
    before, after = lines[at + 2].split("; ")
    assert before.strip() == "training: loss 2 at 16 samples/s with 2 workers (19 steps)"
    assert after == "then loss 1 at 32 samples/s with 4 workers (20 steps)"
    assert list(told("digits", [])) == ["digits: nothing has been written down yet"]
