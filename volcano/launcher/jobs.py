# SPDX-License-Identifier: Apache-2.0
"""What a person does with Jobs: see them, ask for another size, keep the autoscaler off, end them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.contracts import (
    hold_of,
    latest_outcome,
    open_outcome,
    open_request,
    progress_of,
    spec_of,
)
from kfp_volcano.elastic.autoscaler.executor import REQUEST_S
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.elastic.autoscaler.resizing import request_patch
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.errors import ConflictError, ForbiddenError, NotFoundError, SpecError
from kfp_volcano.schemas.names import HOLD, OWNER
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.schemas.records import Hold, ResizeRequest, dump
from kfp_volcano.volcano.cluster.annotations import MOST_TRIES, annotation, annotation_patch
from kfp_volcano.volcano.cluster.awaiting import until
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.waiting import explain_wait
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.manifests.status import job_state
from kfp_volcano.volcano.model.objects import is_owned_by, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest, Patch

__all__ = ["JobLine", "ask_for", "cancel", "hold", "job_lines", "leave", "let_go", "workers_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A training at a glance."""

    job: str
    """namespace/name."""
    queue: str
    state: str
    workers: int
    """As the Job asks for now."""
    sizes: tuple[int, ...]
    """It may have; one where it is not elastic."""
    since: float
    """When it was created, Unix seconds."""
    step: int | None
    total_steps: int | None
    loss: float | None
    waits: str | None
    """Why it waits."""
    held_until: float | None
    """Until when a person keeps the autoscaler off."""
    last_resize: str | None
    """How the last resize went, in words."""


def job_lines(cluster: Cluster, namespace: str, now: float) -> list[JobLine]:
    """The Jobs of a namespace (all where it is empty) that are trainings, oldest first, with what is known of them."""
    groups, _ = cluster.list("PodGroup", namespace)
    queues: list[Manifest] = []
    with suppress(ForbiddenError):  # why a gang waits is told in the scheduler's words then
        queues, _ = cluster.list("Queue")
    ours = (job for job in cluster.list("Job", namespace)[0] if annotation(job, OWNER) is not None)
    return sorted((_line(job, groups, queues, now) for job in ours), key=lambda line: (line.since, line.job))


def _line(job: Manifest, groups: list[Manifest], queues: list[Manifest], now: float) -> JobLine:
    spec, progress, resize, held = spec_of(job), progress_of(job), latest_outcome(job), hold_of(job)
    group = next((each for each in groups if is_owned_by(each, job["metadata"]["uid"])), None)
    count = workers_of(job)
    return JobLine(
        job=str(JobRef.of(job)),
        queue=str(job["spec"].get("queue", "")),
        state=job_state(job).value,
        workers=count,
        sizes=spec.workers.replicas.sizes if spec and spec.elastic else (count,),
        since=parse_time(job["metadata"]["creationTimestamp"]),
        step=progress.step if progress else None,
        total_steps=progress.total_steps if progress else None,
        loss=progress.loss if progress else None,
        waits=None if job_state(job).final else explain_wait(group, queues=queues),
        held_until=held.until if held and held.until > now else None,
        last_resize=f"{resize.from_workers} -> {resize.to_workers} {resize.phase.value}" if resize else None,
    )


def workers_of(job: Manifest) -> int:
    """How many workers a Job asks for now."""
    return workers(job) or sum(int(task.get("replicas", 1)) for task in job["spec"]["tasks"])


def leave(cluster: Cluster, ref: JobRef, *, holder: str, clock: Callable[[], float]) -> None:
    """Leave a Job to the autoscaler: nobody is going to follow it, so that its resizes need not wait for anybody."""
    lease = JobLease(cluster, ref.namespace, ref.name, holder=holder, clock=clock)
    with suppress(ForbiddenError):  # then it is waited for a minute long
        lease.hold()
        lease.release()


def ask_for(cluster: Cluster, ref: JobRef, size: int, *, by: str, why: str, request_id: str, now: float) -> bool:
    """Put a person's request for another size on a Job; False where it has that size already.

    Whoever follows the Job executes it, and the resize is recorded as any other.

    Raises:
        SpecError: The Job cannot have that size: names those it can.
        ConflictError: A resize is being executed, or the last request may still be taken up.
        NotFoundError: There is no such Job.
    """

    def asked(job: Manifest) -> Patch | None:
        current = workers_of(job)
        _check_size(ref, job, size, "its number of workers cannot change")
        state = job_state(job)
        if state.final or "deletionTimestamp" in job["metadata"]:
            raise SpecError(f"the Job has ended or is ending ({state.value})", source=str(ref))
        if size == current:
            return None
        if open_outcome(job) is not None or open_request(job, now) is not None:
            raise ConflictError(f"{ref} is being resized: wait for it (kfp-volcano jobs list), then ask again")
        request = ResizeRequest(
            id=request_id,
            from_workers=current,
            to_workers=size,
            reason=Reason.OVERRIDE.value,
            explanation=why or f"{by} asked for {counted(size, 'worker')}",
            policy="person",
            by=by,
            at=now,
            expires=now + REQUEST_S,
        )
        return request_patch(job, request, by=by, now=now)

    return _patched(cluster, ref, asked)


def hold(cluster: Cluster, ref: JobRef, wanted: Hold) -> None:
    """Keep the autoscaler off a Job for a time, or have it bring the Job to a size and leave it there.

    Raises:
        SpecError: The Job is not elastic, or cannot have that size.
        NotFoundError: There is no such Job.
    """

    def held(job: Manifest) -> Patch:
        _check_size(ref, job, wanted.override, "nothing resizes it")
        return annotation_patch(job, HOLD, dump(wanted))

    _patched(cluster, ref, held)


def _patched(cluster: Cluster, ref: JobRef, change: Callable[[Manifest], Patch | None]) -> bool:
    """Patch a Job as it is by now, again where it changes in between; False where nothing is to be changed.

    A Job's status changes all the time while its pods come and go: no reason for a person to try again.
    """
    for _ in range(MOST_TRIES):
        patch = change(ref.read(cluster))
        if patch is None:
            return False
        try:
            cluster.patch("Job", ref.name, ref.namespace, patch)
        except ConflictError:
            continue
        return True
    raise ConflictError(f"{ref} is being changed by others all the time")


def _check_size(ref: JobRef, job: Manifest, size: int | None, otherwise: str) -> None:
    """Raise SpecError where a Job is not elastic, or cannot have that size; None stands for any."""
    spec = spec_of(job)
    if spec is None or not spec.elastic:
        raise SpecError(f"{ref} is not elastic: {otherwise}", source=str(ref))
    if size is not None and size not in spec.workers.replicas.sizes:
        sizes = ", ".join(map(str, spec.workers.replicas.sizes))
        raise SpecError(f"{counted(size, 'worker')} is none of its sizes: {sizes}", source=str(ref))


def let_go(cluster: Cluster, ref: JobRef, *, by: str, now: float) -> bool:
    """End a hold; False where there was none."""

    def ended(job: Manifest) -> Patch | None:
        held = hold_of(job)
        if held is None or held.until <= now:
            return None
        return annotation_patch(job, HOLD, dump(Hold(until=now, by=by, reason="ended")))

    return _patched(cluster, ref, ended)


def cancel(cluster: Cluster, job: Manifest, *, patience_s: float = 60.0) -> bool:
    """Delete a Job, and with it all that belongs to it; whether its pods were gone within `patience_s` seconds.

    Only that very Job: one of its name that came after it stays. One that is gone already is no error.
    """
    ref, uid = JobRef.of(job), job["metadata"]["uid"]
    try:
        cluster.delete("Job", ref.name, ref.namespace, uid=uid)
    except (NotFoundError, ConflictError):
        return True

    def gone(pods: list[Manifest]) -> bool | None:
        return not any(is_owned_by(pod, uid) for pod in pods) or None

    return bool(until(cluster, "Pod", ref.namespace, gone, patience_s=patience_s))
