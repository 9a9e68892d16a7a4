"""The bodies of the KFP steps: connect, do one thing, keep the record, fail with a message and an exit code.

Each is a process of its own and may be killed and started again at any line; what must survive is on the Job.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.execution import execute, latest_outcome, open_request
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.errors import NotFoundError
from kfp_volcano.platform_files import in_its_pool, resource_profiles
from kfp_volcano.schemas import template
from kfp_volcano.schemas.names import ENV_OUT
from kfp_volcano.schemas.records import Phase
from kfp_volcano.schemas.validation import parse, training_job
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.launcher.collect import copy_model, gather, has_model
from kfp_volcano.volcano.launcher.folder import report_folder, training_job_of
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.reference import JobRef, effective_run_id
from kfp_volcano.volcano.launcher.step_record import failing_cleanly, job_began, record_step, recorded, say
from kfp_volcano.volcano.launcher.submit import submit
from kfp_volcano.volcano.manifests.convert.task_config import with_task_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.schemas.records import ResizeOutcome
    from kfp_volcano.schemas.training_job import TrainingJob

__all__ = ["Figures", "collect_step", "conclude_step", "create_job", "resize_step", "submit_step", "train_step"]


@dataclass(frozen=True, slots=True)
class Figures:
    """What `collect` publishes."""

    metrics: dict[str, float]
    metadata: dict[str, Any]
    json: str


def submit_step(
    *,
    spec: str,
    values: str,
    folder: str,
    run_id: str,
    part: Sequence[str] = (),
    task_config: Mapping[str, Any] | None = None,
) -> str:
    """Fill in the spec, check it whole, create or adopt the Job; returns namespace/name.

    `part` says which of the run's trainings it is, `task_config` what the KFP task wants for the workers.
    """
    with failing_cleanly("submit"):
        filled = template.fill(spec, values)
        wire = parse(filled) if isinstance(filled, str) else filled
        profiles = resource_profiles()
        job = training_job(wire, source="the TrainingJob", profiles=profiles)
        if task_config:
            wire, source = with_task_config(wire, task_config), "the TrainingJob with the task's settings"
            job = training_job(wire, source=source, profiles=profiles)
        return str(create_job(job, run_id=run_id, part=part, folder=folder))


def create_job(job: TrainingJob, *, run_id: str, part: Sequence[str], folder: str) -> JobRef:
    """Create or adopt the Job, bound to its pool of GPUs where there are any; take note of it as step `submit`."""
    started_at = time.time()
    cluster, run = connect(), effective_run_id(run_id)
    manifest = submit(cluster, in_its_pool(job), run_id=run, part=part, step="submit", now=started_at, folder=folder)
    ref = JobRef.of(manifest)
    # The first train step takes it up; without it the autoscaler would think that nobody follows the Job.
    JobLease(cluster, ref.namespace, ref.name, holder=f"run:{run}", clock=time.time).hold()
    say(f"Job {ref} is in queue {job.queue}")
    record_step(cluster, ref, "submit", "Succeeded", started_at, ended_at=time.time())
    return ref


def train_step(*, job: str, segment: int, last: bool, run_id: str) -> str:
    """Follow the Job through segment number `segment`; returns `resized` or `done`."""
    with failing_cleanly(f"train-{segment}"):
        cluster, ref, run = connect(), JobRef.parse(job), effective_run_id(run_id)
        with recorded(cluster, ref, f"train-{segment}") as record:
            outcome = follow(
                cluster,
                ref,
                holder=f"train-{segment}:{run}",
                heir=f"run:{run}",
                last=last,
                clock=time.time,
                say=say,
            )
            record.outcome = "Resized" if outcome == "resized" else "Succeeded"
        return outcome


def resize_step(*, job: str, segment: int, run_id: str, report: str) -> str:
    """Execute the open request, or record the urgent one that was executed already; returns its final phase."""
    with failing_cleanly(f"resize-{segment}"):
        cluster, ref, run = connect(), JobRef.parse(job), effective_run_id(run_id)
        with recorded(cluster, ref, f"resize-{segment}"):
            before = ref.read(cluster)
            outcome: ResizeOutcome | None
            if open_request(before, time.time()) is not None:
                outcome = execute(cluster, ref.namespace, ref.name, holder=f"run:{run}", clock=time.time)
            else:
                outcome = latest_outcome(before)
            text = _describe(outcome)
            say(text)
            Path(report).write_text(f"### Resize {segment}\n\n{text}\n", encoding="utf-8")
        return outcome.phase.value if outcome else Phase.EXPIRED.value


def collect_step(*, job: str, run_id: str, model: str) -> Figures:
    """Audit the ledgers and copy the model to `model`; returns what to publish."""
    with failing_cleanly("collect"):
        cluster, ref = connect(), JobRef.parse(job)
        with recorded(cluster, ref, "collect"):
            manifest = ref.read(cluster)
            result = gather(cluster, manifest, started_at=job_began(manifest), ended_at=time.time())
            spec = training_job_of(manifest)
            files: list[str] = []
            if spec is None or spec.checkpoint is None:
                say("the spec names no checkpoint volume: there is no model to collect")
            elif spec.elasticity.strategy == "live" or has_model(cluster, manifest):
                files = copy_model(cluster, manifest, Path(model))
                say(f"model: {', '.join(files)}")
            else:
                say("the training left no final model on its volume: there is none to collect")
            if result["duplicates"] or result["missing"]:
                say(f"WARNING: {result['duplicates']} samples were used twice and {result['missing']} not at all")
            numbers = {
                key: float(result[key])
                for key in ("accuracy", "samples_seen", "duplicates", "missing", "wall_s")
                if result[key] is not None
            }
            numbers["resizes"] = float(len(result["resizes"]))
            return Figures(numbers, {"job": str(ref), "run_id": run_id, "files": files}, json.dumps(_brief(result)))


def conclude_step(*, job: str, report: str = "", summary: str = "") -> None:
    """Write the report of the Job and clean up; without a Job there is nothing to do but to say so."""
    # The charts' library takes long to import, and no other step draws.
    from kfp_volcano.volcano.launcher.conclude import conclude  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.report import summary_markdown  # noqa: PLC0415

    with failing_cleanly("conclude"):
        cluster, started_at, ref = connect(), time.time(), JobRef.parse(job)
        try:
            # Recorded before the report is written, for the report tells of this step too.
            record_step(cluster, ref, "conclude", "Succeeded", started_at, ended_at=time.time())
            manifest = ref.read(cluster)
        except NotFoundError:
            words = f"Job {ref} is gone: there is nothing to report and nothing to remove"
            say(words)
            _publish(report, f"<p>{words}.</p>", summary, f"{words}.\n")
            return
        kept = os.environ.get(ENV_OUT)
        out = report_folder(Path(kept), ref.name) if kept else Path(mkdtemp(prefix="kfp-volcano-"))
        result = conclude(cluster, manifest, out=out, started_at=job_began(manifest), now=time.time())
        _publish(report, (out / "report.html").read_text(encoding="utf-8"), summary, summary_markdown(result))
        say(f"report: {out / 'report.html'}")


def _publish(report: str, page: str, summary: str, lines: str) -> None:
    """Write report and summary where the step has outputs for them."""
    for path, text in ((report, page), (summary, lines)):
        if path:
            Path(path).write_text(text, encoding="utf-8")


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
