# SPDX-License-Identifier: Apache-2.0
"""A loss that leaps up is seen, rolled back and explained; evaluations are shared, and end a training together."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from kfp_volcano.errors import TrainingStoppedError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.events import Kind
from kfp_volcano.schemas.records import Progress, parse
from kfp_volcano.schemas.structure import load_schema
from kfp_volcano.volcano.launcher.folder import ledger_lines
from kfp_volcano.volcano.launcher.report import write_report
from kfp_volcano.volcano.launcher.result import build_result
from kfp_volcano.volcano.launcher.story import exact, story
from kfp_volcano.volcano.launcher.trace import as_json, event_lines, trace, trace_recorded
from live.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(__file__).with_name("poisoned.py")


def watching(then: str, **more: Any) -> dict[str, Any]:
    """A `monitor` that looks at the last ten steps."""
    return {"loss": {"spike": 3.0, "window": 10, "steps": 3, "then": then}, **more}


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """The script by one worker outside any Job."""

    def run(*, epochs: int = 6, monitor: dict[str, Any]) -> Job:
        job = Job(tmp_path / "alone", SCRIPT, {})
        settings = {"checkpoint_keep": 4, "checkpoint_every_s": 3600, "monitor": monitor}
        monkeypatch.setenv(names.ENV_ELASTICITY, json.dumps(settings))
        monkeypatch.setenv(names.ENV_JOB_DIR, str(job.folder))
        runpy.run_path(str(SCRIPT), {"EPOCHS": epochs})
        return job

    return run


def report(job: Job, folder: Path) -> tuple[dict[str, Any], str]:
    """The result and the page of a run whose Job left this folder."""
    manifest = {
        "metadata": {"name": "poisoned", "namespace": "vision"},
        "spec": {"queue": "research", "tasks": [{"name": "core", "replicas": 1}]},
        "status": {"state": {"phase": "Completed"}},
    }
    audit = job.audit()
    result = build_result(
        audit=audit,
        job=manifest,
        timeline=[],
        manifest=json.loads((job.folder / "final" / "manifest.json").read_text()),
        started_at=audit.commits[0].time - 1,
        ended_at=audit.commits[-1].time + 1,
        trace=as_json(trace({}, event_lines(job.folder), ledger_lines(job.folder))),
    )
    page, figures = write_report(folder, result)
    jsonschema.validate(json.loads(figures.read_text()), load_schema("result.v1"), jsonschema.Draft202012Validator)
    return result, page.read_text()


def kinds(job: Job) -> list[Kind]:
    return [event.kind for event in job.events()]


def test_a_rollback_that_skips_leaves_out_what_led_to_the_fault_and_nothing_else(train: Callable[..., Job]) -> None:
    """The batches are declared, none is called missing, and the loss is fine again."""
    job = train(monitor=watching("rollback", rollback={"then": "skip"}))
    audit = job.audit()
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing, len(audit.rollbacks)) == (0, 0, 1)
    assert 30 <= audit.skipped <= 50
    assert audit.samples_seen == audit.samples_expected == 103 * 6 - audit.skipped
    assert max(commit.loss for commit in audit.commits) < 3
    assert any(lost.taken_back for lost in audit.lost)
    assert audit.steps_lost(0.0, 1e12) == 0
    seen = kinds(job)
    assert seen.index(Kind.LOSS_SPIKE) < seen.index(Kind.ROLLED_BACK) < seen.index(Kind.BATCHES_SKIPPED)
    assert Kind.RATE_LOWERED not in seen


def test_a_fault_that_comes_back_ends_the_training_after_the_rollbacks_that_are_allowed(
    train: Callable[..., Job], tmp_path: Path
) -> None:
    """The same data with a lower rate leads to the same fault: training stops, and stays stopped."""
    monitor = watching("rollback", rollback={"limit": 2})
    with pytest.raises(TrainingStoppedError, match="the loss of step"):
        train(monitor=monitor)
    job = Job(tmp_path / "alone", SCRIPT, {})
    assert kinds(job).count(Kind.ROLLED_BACK) == 2
    assert kinds(job).count(Kind.STOPPED) == 1
    factors = [event.facts["factor"] for event in job.events() if event.kind is Kind.RATE_LOWERED]
    assert factors == [0.5, 0.25]
    assert not (tmp_path / "alone" / "final").exists()
    with pytest.raises(TrainingStoppedError, match="remove"):
        train(monitor=monitor)


def test_an_alert_changes_nothing_in_what_is_learned(train: Callable[..., Job], tmp_path: Path) -> None:
    """Told once, with the numbers behind it; every sample is fed as if nobody had looked."""
    job = train(monitor=watching("alert", gradient={"window": 10, "then": "alert"}))
    audit = job.audit()
    assert (audit.problems, audit.duplicates, audit.missing, audit.skipped) == ((), 0, 0, 0)
    spikes = [event for event in job.events() if event.kind is Kind.LOSS_SPIKE]
    assert len(spikes) == 1
    assert spikes[0].facts["value"] > spikes[0].facts["limit"] > spikes[0].facts["usual"]
    assert Kind.GRADIENT_SPIKE in kinds(job)
    assert not (tmp_path / "alone" / "stopped.txt").exists()


def test_training_stops_early_where_the_metric_no_longer_improves(train: Callable[..., Job]) -> None:
    """It has finished: a final model, the best checkpoint, and no sample that is called missing."""
    evaluate = {"metric": "accuracy", "earlyStop": {"patience": 2, "minDelta": 0.5}}
    job = train(epochs=50, monitor={"evaluate": evaluate})
    audit = job.audit()
    assert (audit.problems, audit.duplicates, audit.missing) == ((), 0, 0)
    assert audit.samples_expected == audit.samples_seen < 103 * 5
    assert Kind.STOPPED_EARLY in kinds(job)
    assert [set(metric.values) for metric in audit.metrics] == [{"accuracy"}] * len(audit.metrics)
    manifests = [json.loads(path.read_text()) for path in job.folder.glob("checkpoints/*/manifest.json")]
    assert sum(manifest["best"] for manifest in manifests) == 1


def test_all_workers_roll_back_together_and_the_report_explains_it(
    make_job: Callable[..., Job], tmp_path: Path
) -> None:
    """Three of them: one rollback, every batch fed once by the ledgers; it was seen, rolled back, explained."""
    job = make_job(
        epochs=14, pace=0.01, script=SCRIPT, monitor=watching("rollback", rollback={"then": "skip"}), checkpoint_keep=9
    )
    for pod in ("w-0", "w-1", "w-2"):
        job.start(pod)
    assert [job.exit_code(pod) for pod in ("w-0", "w-1", "w-2")] == [0, 0, 0]
    audit = job.audit()
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing, len(audit.rollbacks)) == (0, 0, 1)
    assert audit.skipped > 0
    assert kinds(job).count(Kind.ROLLED_BACK) == 1
    result, page = report(job, tmp_path / "report")
    assert exact(result)
    for told in ("The watch on convergence", "LossSpike", "RolledBack", "BatchesSkipped", "Skipped on purpose"):
        assert told in page
    sentence = next(each for each in story(result) if each.startswith("Training saw that the loss of step"))
    assert "it went back from step" in sentence
    assert "are not fed again" in sentence
    back = next(entry for entry in result["trace"] if entry["kind"] == "RolledBack")
    assert back["before"]["loss"] > 10
    assert back["after"]["loss"] < 3
    assert trace_recorded(tmp_path / "report")[1] == trace({}, event_lines(job.folder), ledger_lines(job.folder))
    last = parse(Progress, (job.folder / "reports.jsonl").read_text().splitlines()[-1])
    assert last.watched is not None
    assert last.watched.rollbacks == 1
    assert 0.8 < last.metrics["accuracy"] <= 1


def test_the_processes_of_workers_roll_back_together_too(make_job: Callable[..., Job]) -> None:
    """Two workers of two each: all of them find the same checkpoint and go on from it as one."""
    monitor = watching("rollback", rollback={"then": "skip"})
    job = make_job(epochs=7, pace=0.02, script=SCRIPT, monitor=monitor, checkpoint_keep=9)
    for pod in ("w-0", "w-1"):
        job.start(pod, 2)
    assert [job.exit_code(f"{pod}/{rank}") for pod in ("w-0", "w-1") for rank in range(2)] == [0] * 4
    audit = job.audit()
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing, len(audit.rollbacks)) == (0, 0, 1)
    assert audit.skipped > 0
    assert kinds(job).count(Kind.ROLLED_BACK) == 1
