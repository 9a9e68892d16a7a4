"""The bodies of the KFP steps: connect, do one thing, keep the record, fail with a message and an exit code.

Each is a process of its own and may be killed and started again at any line; what must survive is on the Job.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.execution import execute, latest_outcome, open_request
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.errors import KfpVolcanoError
from kfp_volcano.reading import read_document
from kfp_volcano.schemas import template
from kfp_volcano.schemas.gpu_pools import bound, gpu_pools
from kfp_volcano.schemas.names import ENV_OUT, ENV_POOLS, STEPS
from kfp_volcano.schemas.records import Phase, StepRecord, dump, parse_list
from kfp_volcano.schemas.validation import parse, training_job
from kfp_volcano.volcano.cluster.annotations import annotation, update_annotation
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.launcher.collect import copy_model, gather
from kfp_volcano.volcano.launcher.folder import training_job_of
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.reference import JobRef, effective_run_id, find_job
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.schemas.records import ResizeOutcome
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["Figures", "collect_step", "conclude_step", "resize_step", "submit_step", "train_step"]


@dataclass(frozen=True, slots=True)
class Figures:
    """What `collect` publishes."""

    metrics: dict[str, float]
    metadata: dict[str, Any]
    json: str


def submit_step(*, spec: str, values: str, folder: str, run_id: str) -> str:
    """Fill in the spec, check it whole, create or adopt the Job; returns namespace/name."""
    with _failing_cleanly("submit"):
        started_at = time.time()
        filled = template.fill(spec, values)
        job = training_job(parse(filled) if isinstance(filled, str) else filled, source="the TrainingJob")
        pools = os.environ.get(ENV_POOLS)
        if pools:
            job = bound(job, gpu_pools(read_document(Path(pools)), source=pools))
        cluster, run = connect(), effective_run_id(run_id)
        manifest = submit(cluster, job, run_id=run, step="submit", now=started_at, folder=folder)
        ref = JobRef.of(manifest)
        # The first train step takes it up; without it the autoscaler would think that nobody follows the Job.
        JobLease(cluster, ref.namespace, ref.name, holder=f"run:{run}", clock=time.time).hold()
        _say(f"Job {ref} is in queue {job.queue}")
        _record(cluster, ref, "submit", "Succeeded", started_at, ended_at=time.time())
        return str(ref)


def train_step(*, job: str, segment: int, last: bool, run_id: str) -> str:
    """Follow the Job through segment number `segment`; returns `resized` or `done`."""
    with _failing_cleanly(f"train-{segment}"):
        cluster, ref, run = connect(), JobRef.parse(job), effective_run_id(run_id)
        with _recorded(cluster, ref, f"train-{segment}") as record:
            outcome = follow(
                cluster,
                ref,
                holder=f"train-{segment}:{run}",
                heir=f"run:{run}",
                last=last,
                clock=time.time,
                say=_say,
            )
            record.outcome = "Resized" if outcome == "resized" else "Succeeded"
        return outcome


def resize_step(*, job: str, segment: int, run_id: str, report: str) -> str:
    """Execute the open request, or record the urgent one that was executed already; returns its final phase."""
    with _failing_cleanly(f"resize-{segment}"):
        cluster, ref, run = connect(), JobRef.parse(job), effective_run_id(run_id)
        with _recorded(cluster, ref, f"resize-{segment}"):
            before = ref.read(cluster)
            outcome: ResizeOutcome | None
            if open_request(before, time.time()) is not None:
                outcome = execute(cluster, ref.namespace, ref.name, holder=f"run:{run}", clock=time.time)
            else:
                outcome = latest_outcome(before)
            text = _describe(outcome)
            _say(text)
            Path(report).write_text(f"### Resize {segment}\n\n{text}\n", encoding="utf-8")
        return outcome.phase.value if outcome else Phase.EXPIRED.value


def collect_step(*, job: str, run_id: str, model: str) -> Figures:
    """Audit the ledgers and copy the model to `model`; returns what to publish."""
    with _failing_cleanly("collect"):
        cluster, ref = connect(), JobRef.parse(job)
        with _recorded(cluster, ref, "collect"):
            manifest = ref.read(cluster)
            result = gather(cluster, manifest, started_at=_started_at(manifest), ended_at=time.time())
            spec = training_job_of(manifest)
            files: list[str] = []
            if spec is not None and spec.checkpoint is not None:
                files = copy_model(cluster, manifest, Path(model))
                _say(f"model: {', '.join(files)}")
            else:
                _say("the spec names no checkpoint volume: there is no model to collect")
            if result["duplicates"] or result["missing"]:
                _say(f"WARNING: {result['duplicates']} samples were used twice and {result['missing']} not at all")
            numbers = {
                key: float(result[key])
                for key in ("accuracy", "samples_seen", "duplicates", "missing", "wall_s")
                if result[key] is not None
            }
            numbers["resizes"] = float(len(result["resizes"]))
            return Figures(numbers, {"job": str(ref), "run_id": run_id, "files": files}, json.dumps(_brief(result)))


def conclude_step(*, run_id: str, report: str, summary: str) -> None:
    """Write the report of the run's Job and clean up; without a Job there is nothing to do but to say so."""
    # The charts' library takes long to import, and no other step draws.
    from kfp_volcano.volcano.launcher.conclude import conclude  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.report import summary_markdown  # noqa: PLC0415

    with _failing_cleanly("conclude"):
        cluster, started_at = connect(), time.time()
        manifest = find_job(cluster, effective_run_id(run_id))
        if manifest is None:
            _say("this run has no Job: nothing to report and nothing to remove")
            Path(report).write_text("<p>This run created no Job.</p>", encoding="utf-8")
            Path(summary).write_text("This run created no Job.\n", encoding="utf-8")
            return
        ref = JobRef.of(manifest)
        # Recorded before the report is written, for the report tells of this step too.
        _record(cluster, ref, "conclude", "Succeeded", started_at, ended_at=time.time())
        out = Path(os.environ.get(ENV_OUT) or mkdtemp(prefix="kfp-volcano-"))
        manifest = ref.read(cluster)
        result = conclude(cluster, manifest, out=out, started_at=_started_at(manifest), now=time.time())
        Path(report).write_bytes((out / "report.html").read_bytes())
        Path(summary).write_text(summary_markdown(result), encoding="utf-8")
        _say(f"report: {out / 'report.html'}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a step's log is its standard output


@contextmanager
def _failing_cleanly(step: str) -> Iterator[None]:
    """Turn an error raised on purpose into a message and an exit code, without a traceback."""
    try:
        yield
    except KfpVolcanoError as error:
        print(f"{step}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        out = os.environ.get(ENV_OUT)
        if out:
            # kfp loses exit codes; the command line reads this one, of the step that failed first.
            record = {"step": step, "exit_code": error.exit_code, "message": str(error)}
            path = Path(out) / "error.json"
            if not path.exists():
                path.write_text(json.dumps(record), encoding="utf-8")
        sys.exit(error.exit_code)


@dataclass
class _Recording:
    outcome: str = "Succeeded"


@contextmanager
def _recorded(cluster: Cluster, ref: JobRef, name: str) -> Iterator[_Recording]:
    """Keep the Job's record of a step: that it runs, and how it ended."""
    started_at = time.time()
    _record(cluster, ref, name, "Running", started_at)
    recording = _Recording()
    try:
        yield recording
    except BaseException:
        recording.outcome = "Failed"
        raise
    finally:
        _record(cluster, ref, name, recording.outcome, started_at, ended_at=time.time())


def _record(
    cluster: Cluster, ref: JobRef, name: str, outcome: str, started_at: float, *, ended_at: float | None = None
) -> None:
    attempt = int(os.environ.get("KFP_RETRY_INDEX") or 0)
    entry = StepRecord(name=name, attempt=attempt, outcome=outcome, started_at=started_at, ended_at=ended_at)

    def change(text: str | None) -> str:
        records = parse_list(StepRecord, text)
        for index, record in enumerate(records):
            if (record.name, record.attempt) == (name, attempt):
                records[index] = replace(entry, started_at=record.started_at)
                return dump(records)
        return dump([*records, entry])

    update_annotation(cluster, "Job", ref.name, ref.namespace, STEPS, change)


def _started_at(job: Manifest) -> float:
    records = parse_list(StepRecord, annotation(job, STEPS))
    return min((record.started_at for record in records), default=time.time())


def _describe(outcome: ResizeOutcome | None) -> str:
    if outcome is None:
        return "the request has expired: nothing was changed"
    sizes = f"{outcome.from_workers} → {outcome.to_workers} workers"
    took = f" in {outcome.done_at - outcome.requested_at:.1f} s" if outcome.done_at else ""
    pause = f"; training paused {outcome.pause_s:.2f} s" if outcome.pause_s is not None else ""
    return f"{outcome.phase.value}: {sizes}{took}{pause}. {outcome.explanation} {outcome.message}".rstrip()


def _brief(result: dict[str, Any]) -> dict[str, Any]:
    """The result without its long series: an output parameter is kept small on a backend."""
    return {key: value for key, value in result.items() if key not in {"loss", "workers", "throughput"}}
