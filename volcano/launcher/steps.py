# SPDX-License-Identifier: Apache-2.0
"""The bodies of the KFP steps: connect, do one thing, keep the record, fail with a message and an exit code.

Each is a process of its own and may be killed and started again at any line; what must survive is on the Job.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.contracts import progress_of
from kfp_volcano.elastic.autoscaler.execution import execute, latest_outcome, open_request
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.errors import ClusterError, ConflictError, NotFoundError
from kfp_volcano.platform_files import in_its_pool, resource_profiles
from kfp_volcano.schemas import template
from kfp_volcano.schemas.names import ENV_OUT, MOUNT_PATH
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.schemas.records import Phase
from kfp_volcano.schemas.validation import parse, training_job
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.launcher.beginning import failed_at_once
from kfp_volcano.volcano.launcher.collect import final_model, gather
from kfp_volcano.volcano.launcher.folder import report_folder
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.measured import advice_of
from kfp_volcano.volcano.launcher.reference import JobRef, effective_run_id
from kfp_volcano.volcano.launcher.step_pod import check_mount, in_own_namespace, run_of, unowned
from kfp_volcano.volcano.launcher.step_record import failing_cleanly, job_began, record_step, recorded, say
from kfp_volcano.volcano.launcher.submit import submit
from kfp_volcano.volcano.launcher.termination import ended_with_its_run
from kfp_volcano.volcano.manifests.convert.task_config import with_task_config
from kfp_volcano.volcano.manifests.status import JobState, job_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.schemas.records import ResizeOutcome
    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.collect import FinalModel

__all__ = ["Figures", "collect_step", "conclude_step", "create_job", "resize_step", "submit_step", "train_step"]

PATIENCE_S = 600.0
"""How long steps wait for an API server that does not answer: one that fails ends the run, and with it the training.
The step that follows a Job waits on, and reads other nodes meanwhile."""


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
    volume: str = "",
    followed: bool = False,
) -> str:
    """Fill in the spec, check it whole, create or adopt the Job; returns namespace/name.

    `part` says which of the run's trainings it is, `task_config` what the KFP task wants for the workers, `volume`
    which claim the steps after this one mount, and `followed` that this very step follows the Job from here on.
    """
    with failing_cleanly("submit"):
        cluster = connect(patience_s=PATIENCE_S)
        filled = template.fill(spec, values)
        wire = in_own_namespace(parse(filled) if isinstance(filled, str) else filled, cluster.own_pod())
        profiles = resource_profiles()
        job = training_job(wire, source="the TrainingJob", profiles=profiles)
        if task_config:
            wire, source = with_task_config(wire, task_config), "the TrainingJob with the task's settings"
            job = training_job(wire, source=source, profiles=profiles)
        return str(create_job(cluster, job, run_id=run_id, part=part, folder=folder, volume=volume, followed=followed))


def create_job(
    cluster: Cluster,
    job: TrainingJob,
    *,
    run_id: str,
    part: Sequence[str],
    folder: str,
    volume: str,
    followed: bool = False,
) -> JobRef:
    """Create or adopt the Job, bound to its pool of GPUs where there are any; take note of it as step `submit`.

    The Job belongs to the pipeline run where that is possible. `volume` is the claim that later steps mount. On a
    backend a minute passes before the next step is there: unless the Job is `followed` from here on, its first seconds
    are looked at.
    """
    started_at = time.time()
    pod, run = cluster.own_pod(), effective_run_id(run_id)
    alone = unowned(pod, job.namespace)
    notes = (check_mount(cluster, pod, job, volume), alone)
    manifest = submit(
        cluster,
        in_its_pool(job),
        run_id=run,
        part=part,
        step="submit" if pod else "submit from outside",  # the reaper sees no run that is not on its cluster
        now=started_at,
        folder=folder,
        owner=None if alone else run_of(pod),
    )
    ref = JobRef.of(manifest)
    # The first train step takes it up; without it the autoscaler would think that nobody follows the Job.
    with _noting(ref, "its run's Lease"):
        JobLease(cluster, ref.namespace, ref.name, holder=f"run:{run}", clock=time.time).hold()
    say(f"Job {ref} is in queue {job.queue}")
    if advice := advice_of(manifest):
        say(f"its requests follow what was measured: {advice.explanation}")
    for note in filter(None, notes):
        say(note)
    saw = "" if pod is None or followed else failed_at_once(cluster, ref, clock=time.monotonic, sleep=time.sleep)
    if saw:
        say(saw)
    with _noting(ref, "this step"):
        record_step(cluster, ref, "submit", "Succeeded", started_at, ended_at=time.time(), saw=saw)
    return ref


@contextmanager
def _noting(ref: JobRef, what: str) -> Iterator[None]:
    """What is only noted ends no step: a Job that is there and whose step failed would have nobody to conclude it."""
    try:
        yield
    except ClusterError as error:
        say(f"Job {ref} is there, but {what} could not be noted: {error}")


def train_step(*, job: str, segment: int, last: bool, run_id: str, alone: bool = False) -> str:
    """Follow the Job through segment number `segment`; returns `resized` or `done`.

    A step that is `alone`, without an exit task, sees to it that the Job goes when the run is terminated.
    """
    with failing_cleanly(f"train-{segment}"):
        cluster, ref, run = connect(), JobRef.parse(job), effective_run_id(run_id)
        ending = ended_with_its_run(connect, ref, cluster.own_pod()) if alone else nullcontext()
        with recorded(cluster, ref, f"train-{segment}") as record, ending:
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
        cluster, ref, run = connect(patience_s=PATIENCE_S), JobRef.parse(job), effective_run_id(run_id)
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


def collect_step(*, job: str, run_id: str, model: str, copy_up_to: int) -> Figures:
    """Audit the ledgers and take in the model; returns what to publish.

    A model of up to `copy_up_to` bytes is copied to `model`, from where KFP brings it to its store. A larger one stays
    where it lies, and so does one whose volume is not mounted here: then `model` says where.
    """
    with failing_cleanly("collect"):
        cluster, ref = connect(patience_s=PATIENCE_S), JobRef.parse(job)
        with recorded(cluster, ref, "collect"):
            manifest = ref.read(cluster)
            result = gather(cluster, manifest, started_at=job_began(manifest), ended_at=time.time())
            found = final_model(cluster, manifest)
            copied = found is not None and found.here is not None and found.size <= copy_up_to
            if found is not None and copied:
                found.copy(Path(model))
            elif found is not None:
                found.point(Path(model))
            say(_of_model(found, copied=copied))
            if result["duplicates"] or result["missing"]:
                say(f"WARNING: {result['duplicates']} samples were used twice and {result['missing']} not at all")
            metadata = {"job": str(ref), "run_id": run_id, **(found.metadata if found else {})}
            return Figures(_numbers(result, manifest), metadata, json.dumps(_brief(result)))


def _of_model(model: FinalModel | None, *, copied: bool) -> str:
    """What became of the model, in a line."""
    if model is None:
        return "the training left no final model on a volume: there is none to collect"
    if copied:
        return f"model: {', '.join(model.files)}"
    stays = f"the model stays in {model.folder} of claim {model.claim}, namespace {model.namespace}"
    if model.here is None:
        return (
            f"{stays}, which is not mounted in this step: samples were not audited. To change that leave"
            f' metadata.namespace out of the spec, or say volume="{model.claim}" beside it'
        )
    return (
        f"{stays}: {model.size} bytes are more than copy_up_to. A step reads it at"
        f' model.metadata["path"] after kubernetes.mount_pvc(step, "{model.claim}", "{MOUNT_PATH}")'
    )


def _numbers(result: Mapping[str, Any], job: Manifest) -> dict[str, float]:
    """The figures for KFP's table of metrics; where no ledger could be read, what training last said of itself."""
    keys = ("accuracy", "samples_seen", "duplicates", "missing", "wall_s")
    numbers = {key: float(result[key]) for key in keys if result[key] is not None}
    numbers["resizes"] = float(len(result["resizes"]))
    progress = progress_of(job)
    if progress and result["samples_seen"] is None:
        loss = {} if progress.loss is None else {"loss": progress.loss}
        numbers = {**progress.metrics, **loss, "samples": float(progress.samples), **numbers}
    return numbers


def conclude_step(*, job: str, report: str = "", summary: str = "") -> None:
    """Write the report of the Job and clean up; without a Job there is nothing to do but to say so."""
    # The charts' library takes long to import, and no other step draws.
    from kfp_volcano.volcano.launcher.conclude import conclude  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.report import summary_markdown  # noqa: PLC0415

    with failing_cleanly("conclude"):
        cluster, started_at, ref = connect(patience_s=PATIENCE_S), time.time(), JobRef.parse(job)
        try:
            # Recorded before the report is written, for the report tells of this step too.
            with suppress(ConflictError):  # others write all the time: the Job must be cleaned up all the same
                record_step(cluster, ref, "conclude", "Succeeded", started_at, ended_at=time.time())
            manifest = ref.read(cluster)
        except NotFoundError:
            words = f"Job {ref} is gone: there is nothing to report and nothing to remove"
            say(words)
            _publish(report, f"<p>{words}.</p>", summary, f"{words}.\n")
            return
        kept = os.environ.get(ENV_OUT)
        out = report_folder(Path(kept), ref.name) if kept else Path(mkdtemp(prefix="kfp-volcano-"))
        try:
            result = conclude(
                cluster, manifest, out=out, started_at=job_began(manifest), now=time.time(), with_ledgers=bool(kept)
            )
        except (ClusterError, OSError, ValueError) as error:
            if job_state(manifest) is not JobState.SUCCEEDED:
                raise
            words = f"Job {ref} has succeeded, but its report could not be made: {error}"
            say(words)
            _publish(report, f"<p>{escape(words)}</p>", summary, f"{words}\n")
            return
        _publish(report, (out / "report.html").read_text(encoding="utf-8"), summary, summary_markdown(result))
        say(f"report: {out / 'report.html'}" if kept else f"Job {ref} is {result['state']}: reported")


def _publish(report: str, page: str, summary: str, lines: str) -> None:
    """Write report and summary where the step has outputs for them."""
    for path, text in ((report, page), (summary, lines)):
        if path:
            Path(path).write_text(text, encoding="utf-8")


def _describe(outcome: ResizeOutcome | None) -> str:
    if outcome is None:
        return "the request has expired: nothing was changed"
    sizes = f"{outcome.from_workers} → {counted(outcome.to_workers, 'worker')}"
    took = f" in {outcome.done_at - outcome.requested_at:.1f} s" if outcome.done_at else ""
    pause = f"; training paused {outcome.pause_s:.2f} s" if outcome.pause_s is not None else ""
    return f"{outcome.phase.value}: {sizes}{took}{pause}. {outcome.explanation} {outcome.message}".rstrip()


def _brief(result: dict[str, Any]) -> dict[str, Any]:
    """The result without its long series: an output parameter is kept small on a backend."""
    return {key: value for key, value in result.items() if key not in {"loss", "workers", "throughput"}}
