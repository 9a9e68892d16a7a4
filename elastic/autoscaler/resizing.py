# SPDX-License-Identifier: Apache-2.0
"""A resize as a state machine on the Job's annotations: what is to be done next. Pure: objects and time come in.

::

    request ─> Accepted ─> Patched ─> Ready ─> Done | RolledBack
                  │           └─ settled at what found a node
                  └─> Refused, Expired

Each step is one JSON Patch that tests all it was decided on and carries the change together with its record, so there
is no moment at which one is there without the other. Whoever is killed at any line leaves a state from which anybody
goes on; two who execute the same resize refuse each other's second patch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.contracts import open_outcome, outcomes, progress_of, request_of, spec_of
from kfp_volcano.elastic.policies.guards import PLACE_S
from kfp_volcano.errors import ResizeError
from kfp_volcano.schemas.names import CORE, ELASTIC, REQUEST, RESIZE, pod_name
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.schemas.records import Phase, ResizeOutcome, dump
from kfp_volcano.volcano.cluster.annotations import annotation_patch
from kfp_volcano.volcano.manifests.resize import resize_patch, workers
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.objects import has_ended, terminating

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.schemas.records import ResizeRequest
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["READY_S", "Step", "next_step", "refused", "request_patch"]

READY_S = 300.0
"""How long workers that have a node may take to run, seconds: images are large."""
REPORT_S = 120.0
"""How long training may take to show the new number of workers once their pods run, seconds."""
SHRUNK_S = 3.0
"""How long a hole may stay open after a shrink, seconds: some of the scheduler's cycles of 1 s. A gang that reclaim has
served already holds those GPUs."""
MOST_OUTCOMES = 50

_LIVE = {JobState.PENDING, JobState.RUNNING, JobState.RESTARTING}


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done next for a Job's resize."""

    outcome: ResizeOutcome | None = None
    """The resize as it reads once `patch` is applied; None if the Job has none."""
    patch: list[dict[str, Any]] | None = None
    """The JSON Patch of the Job, None to wait."""
    look_at: float | None = None
    """When waiting ends, Unix seconds, if nothing changes before; None when nothing is waited for."""


def next_step(job: Manifest, pods: Iterable[Manifest], *, by: str, now: float, ready_s: float = READY_S) -> Step:
    """What whoever executes the Job's resize does next.

    Args:
        job: The Job as read from the cluster.
        pods: Its pods; those of other Jobs are overlooked.
        by: Who executes, for the record.
        now: Unix seconds.
        ready_s: How long workers that have a node may take to run.
    """
    outcome = open_outcome(job)
    if outcome is None:
        return _take_up(job, by, now)
    if outcome.phase is Phase.ACCEPTED:
        return _patch(job, replace(outcome, executed_by=by), now)
    if outcome.phase is Phase.PATCHED:
        return _await_pods(job, outcome, [pod for pod in pods if _belongs(pod, job)], now, ready_s)
    return _await_training(job, outcome, now)


def request_patch(job: Manifest, request: ResizeRequest, *, by: str, now: float) -> list[dict[str, Any]]:
    """The JSON Patch that puts a request on a Job; an urgent one is carried out by the same patch.

    Raises ResizeError where the Job cannot have an urgent request's size.
    """
    patch = annotation_patch(job, REQUEST, dump(request))
    if not request.urgent:
        return patch
    outcome = replace(_accepted(request, by, now), phase=Phase.PATCHED, patched_at=now)
    return patch + _recorded(job, outcome) + resize_patch(job, request.to_workers)


def refused(job: Manifest, request: ResizeRequest, why: str, *, by: str, now: float) -> list[dict[str, Any]]:
    """The JSON Patch that answers a request, written by it or before, with a refusal."""
    outcome = replace(_accepted(request, by, now), phase=Phase.REFUSED, done_at=now, message=why)
    written = request_of(job)
    patch = [] if written is not None and written.id == request.id else annotation_patch(job, REQUEST, dump(request))
    return patch + _recorded(job, outcome)


def _take_up(job: Manifest, by: str, now: float) -> Step:
    request = request_of(job)
    if request is None:
        return Step()
    answer = next((outcome for outcome in reversed(outcomes(job)) if outcome.id == request.id), None)
    if answer is not None:
        return Step(answer)
    outcome = _accepted(request, by, now)
    if now >= request.expires:
        message = "nobody carried it out in time"
        return _write(job, replace(outcome, phase=Phase.EXPIRED, accepted_at=None, done_at=now, message=message))
    why = _why_not(job, request)
    if why is not None:
        return _write(job, replace(outcome, phase=Phase.REFUSED, accepted_at=None, done_at=now, message=why))
    return _write(job, outcome)


def _why_not(job: Manifest, request: ResizeRequest) -> str | None:
    spec, size = spec_of(job), workers(job)
    if spec is None:
        return "the Job was not made by kfp-volcano, or its spec cannot be read"
    if not spec.elastic:
        return "the Job has a fixed number of workers"
    if job_state(job) not in _LIVE or terminating(job):
        return f"the Job is {job_state(job).value}"
    if request.to_workers not in spec.workers.replicas.sizes:
        allowed = ", ".join(map(str, spec.workers.replicas.sizes))
        return f"{request.to_workers} workers are none of the sizes it may have: {allowed}"
    if request.from_workers != size:
        return f"it was asked for a Job of {request.from_workers} workers, but the Job has {size}"
    return "it has that size already" if request.to_workers == size else None


def _patch(job: Manifest, outcome: ResizeOutcome, now: float) -> Step:
    why = f"the Job is {job_state(job).value}" if job_state(job) not in _LIVE else None
    if why is None and workers(job) != outcome.from_workers:
        why = f"the Job has {counted(workers(job), 'worker')}, not {outcome.from_workers}: they were changed meanwhile"
    try:
        change = [] if why else resize_patch(job, outcome.to_workers)
    except ResizeError as error:
        why, change = str(error), []
    if why:
        return _write(job, replace(outcome, phase=Phase.REFUSED, done_at=now, message=why))
    return _write(job, replace(outcome, phase=Phase.PATCHED, patched_at=now), change)


def _await_pods(job: Manifest, outcome: ResizeOutcome, pods: Sequence[Manifest], now: float, ready_s: float) -> Step:
    size = workers(job)
    if job_state(job) not in _LIVE:
        message = f"the Job was {job_state(job).value} before its workers had changed"
        return _write(job, replace(outcome, phase=Phase.EXPIRED, done_at=now, message=message))
    if size != outcome.to_workers:
        message = f"the number of workers was set to {size} meanwhile"
        return _write(job, replace(outcome, phase=Phase.ROLLED_BACK, to_workers=size, done_at=now, message=message))
    wanted = _names(job)
    leaving = [pod for pod in pods if pod["metadata"]["name"] not in wanted and not has_ended(pod)]
    staying = [pod for pod in pods if pod["metadata"]["name"] in wanted and not terminating(pod)]
    placed = sum(bool(pod["spec"].get("nodeName")) for pod in staying)
    running = sum(_phase(pod) in {"Running", "Succeeded"} for pod in staying)
    if running == size and not leaving:
        return _write(job, replace(outcome, phase=Phase.READY, ready_at=now))
    since = outcome.settled_at or outcome.patched_at or now
    place_by = since + (PLACE_S if outcome.to_workers > outcome.from_workers else SHRUNK_S)
    ready_by = since + ready_s
    if placed < size and not leaving and now >= place_by:
        return _settle(job, outcome, placed, f"only {placed} of {size} workers found a node", now)
    if now >= ready_by:
        return _settle(job, outcome, running, f"only {running} of {size} workers run after {ready_s:.0f} s", now)
    return Step(outcome, look_at=place_by if placed < size and not leaving else ready_by)


def _settle(job: Manifest, outcome: ResizeOutcome, got: int, why: str, now: float) -> Step:
    """Lower the Job to what it has: pods that wait compete with gangs that could run instead."""
    spec = spec_of(job)
    sizes = spec.workers.replicas.sizes if spec else ()
    size = max((size for size in sizes if size <= got), default=min(sizes, default=outcome.to_workers))
    if size >= outcome.to_workers:
        return _write(job, replace(outcome, phase=Phase.READY, ready_at=now, message=why))
    message = f"{why}: settled at {size}, asked for {outcome.to_workers}"
    settled = replace(outcome, to_workers=size, settled_at=now, message=message)
    return _write(job, settled, resize_patch(job, size))


def _await_training(job: Manifest, outcome: ResizeOutcome, now: float) -> Step:
    """Done when training shows the new size; at once where nothing reports, or training is over."""
    progress = progress_of(job)
    since = outcome.patched_at or now
    report_by = (outcome.ready_at or now) + REPORT_S
    if progress is None:
        # Training with the live runtime reports, from its first steps on: those may be still to come.
        spec = spec_of(job)
        reports = spec is not None and (spec.framework, spec.elasticity.strategy) == ("pytorch", "live")
        shown = not reports
    else:
        shown = progress.workers == outcome.to_workers and progress.at >= since
    over = job_state(job) is not JobState.RUNNING
    if not shown and not over and now < report_by:
        return Step(outcome, look_at=report_by)
    changes = [change for change in progress.changes if change.at >= since] if progress else []
    message = outcome.message
    if not shown and not over:
        message = f"{message} training has not shown the new size within {REPORT_S:.0f} s".strip()
    done = replace(
        outcome,
        phase=Phase.ROLLED_BACK if outcome.to_workers == outcome.from_workers else Phase.DONE,
        done_at=now,
        pause_s=max((change.pause_s for change in changes), default=None),
        steps_lost=sum(change.steps_lost for change in changes) if changes else None,
        message=message,
    )
    return _write(job, done)


def _accepted(request: ResizeRequest, by: str, now: float) -> ResizeOutcome:
    return ResizeOutcome(
        id=request.id,
        phase=Phase.ACCEPTED,
        from_workers=request.from_workers,
        to_workers=request.to_workers,
        reason=request.reason,
        explanation=request.explanation,
        requested_at=request.at,
        executed_by=by,
        accepted_at=now,
    )


def _write(job: Manifest, outcome: ResizeOutcome, change: Sequence[dict[str, Any]] = ()) -> Step:
    return Step(outcome, [*_recorded(job, outcome), *change])


def _recorded(job: Manifest, outcome: ResizeOutcome) -> list[dict[str, Any]]:
    before = [other for other in outcomes(job) if other.id != outcome.id]
    return annotation_patch(job, RESIZE, dump([*before, outcome][-MOST_OUTCOMES:]))


def _belongs(pod: Manifest, job: Manifest) -> bool:
    labels = pod["metadata"].get("labels") or {}
    same = pod["metadata"].get("namespace") == job["metadata"].get("namespace")
    ours = labels.get("volcano.sh/job-name") == job["metadata"]["name"]
    return same and ours and labels.get("volcano.sh/task-spec") in {CORE, ELASTIC}


def _names(job: Manifest) -> set[str]:
    """Names of the workers' pods that the Job asks for."""
    name, replicas = job["metadata"]["name"], {task["name"]: int(task["replicas"]) for task in job["spec"]["tasks"]}
    return {pod_name(name, task, index) for task in (CORE, ELASTIC) for index in range(replicas.get(task, 0))}


def _phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase", ""))
