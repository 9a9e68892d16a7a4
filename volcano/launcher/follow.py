"""Follow a Job through one segment: its logs, its progress, why it waits, until it ends or is to be resized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kfp_volcano.elastic.autoscaler.commands import command
from kfp_volcano.elastic.autoscaler.execution import execute, open_request
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.elastic.autoscaler.limits import limits, overdue
from kfp_volcano.errors import ConflictError, JobFailedError, NotFoundError
from kfp_volcano.schemas.names import PROGRESS
from kfp_volcano.schemas.records import Progress, parse
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.launcher.ending import Failures, explain_failure, explain_wait
from kfp_volcano.volcano.launcher.logs import LogTail
from kfp_volcano.volcano.launcher.preflights import Preflights
from kfp_volcano.volcano.manifests.status import JobState, job_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.autoscaler.limits import Limit
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["follow"]

LOOK_S = 1.0
"""How often logs are read while nothing else happens."""


def follow(
    cluster: Cluster,
    ref: JobRef,
    *,
    holder: str,
    heir: str,
    last: bool,
    clock: Callable[[], float],
    say: Callable[[str], None],
) -> Literal["resized", "done"]:
    """Print what happens to the Job until it succeeds or a resize is requested.

    While it follows it holds the Job's Lease; before it returns for a resize it hands the Lease on to `heir`.

    Args:
        cluster: Where the Job is.
        ref: The Job.
        holder: Who follows, for the Lease.
        heir: Whom the Lease goes to when a resize is requested.
        last: Execute requested resizes here and go on, for no resize step follows.
        clock: Unix seconds.
        say: Prints one line.

    Raises:
        JobFailedError: The Job ended without success, or took too long; names the first failing container and its
            last lines.
        NotFoundError: The Job is gone.
    """
    job = ref.read(cluster)
    lease = JobLease(cluster, ref.namespace, ref.name, holder=holder, clock=clock)
    tail = LogTail(cluster, job, ref, say)
    informer = Informer(cluster, ("Job", "PodGroup", "Pod"), namespace=ref.namespace)
    informer.start()
    told = _Told(say)
    failures = Failures(cluster, ref.namespace)
    preflights = Preflights(cluster, clock, say)
    pending: tuple[Limit, ...] = ()
    version = 0
    try:
        while True:
            version = informer.wait(version, timeout_s=LOOK_S)
            lease.renew_if_due()
            job = _job(informer, ref)
            pods = _pods(informer, ref)
            tail.pump(pods)
            failures.look(pods)
            told.tell(job, _podgroup(informer, job))
            state = job_state(job)
            if state is JobState.SUCCEEDED:
                lease.release()
                return "done"
            if state.final:
                lease.release()
                reached = [limit.why for limit in pending if limit.at <= clock()]
                raise JobFailedError("\n".join([*reached, explain_failure(job, failures)]))
            pending = tuple(limits(job, pods))
            ended = _keep_limits(cluster, job, pods, clock(), say) or preflights.look(job, pods)
            if ended:
                lease.release()
                raise JobFailedError(f"{ref} was ended: {ended}")
            request = open_request(job, clock())
            if request is not None and not last:
                tail.save()
                lease.hand_over(heir)
                return "resized"
            if request is not None and lease.held:
                say(f"resize {request.from_workers} -> {request.to_workers} workers: {request.explanation}")
                try:
                    outcome = execute(cluster, ref.namespace, ref.name, holder=holder, clock=clock)
                except ConflictError as error:
                    say(f"another is executing the resize: {error}")
                    continue
                say(f"resize {outcome.phase.value}: {outcome.to_workers} workers. {outcome.message}".rstrip())
    finally:
        informer.stop()
        tail.save()


def _keep_limits(
    cluster: Cluster, job: Manifest, pods: list[Manifest], now: float, say: Callable[[str], None]
) -> str | None:
    """Do what is due when the Job has reached a limit; returns why it was ended, if it was."""
    limit = overdue(job, pods, now)
    if limit is None:
        return None
    command(cluster, job, limit.verb, limit.why)
    if limit.verb == "TerminateJob":
        return limit.why
    say(f"{limit.verb}: {limit.why}")
    return None


def _job(informer: Informer, ref: JobRef) -> Manifest:
    for job in informer.objects("Job"):
        if job["metadata"]["name"] == ref.name:
            return job
    raise NotFoundError(f"Job {ref} is gone: it was deleted while this step followed it")


def _pods(informer: Informer, ref: JobRef) -> list[Manifest]:
    return [
        pod
        for pod in informer.objects("Pod")
        if (pod["metadata"].get("labels") or {}).get("volcano.sh/job-name") == ref.name
    ]


def _podgroup(informer: Informer, job: Manifest) -> Manifest | None:
    name = f"{job['metadata']['name']}-{job['metadata']['uid']}"
    return next((group for group in informer.objects("PodGroup") if group["metadata"]["name"] == name), None)


class _Told:
    """What was said last, so that only news is said."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._state: JobState | None = None
        self._why: str | None = None
        self._progress: str | None = None

    def tell(self, job: Manifest, podgroup: Manifest | None) -> None:
        state = job_state(job)
        if state is not self._state:
            self._state = state
            self._say(f"Job {job['metadata']['namespace']}/{job['metadata']['name']} is {state.value}")
        why = explain_wait(podgroup)
        if why != self._why:
            self._why = why
            if why:
                self._say(f"it waits: {why}")
        text = annotation(job, PROGRESS)
        if text and text != self._progress:
            self._progress = text
            self._say(describe_progress(parse(Progress, text)))


def describe_progress(progress: Progress) -> str:
    """Where training stands, in a line."""
    loss = "-" if progress.loss is None else f"{progress.loss:.4f}"
    metrics = "".join(f"  {name} {value:.4g}" for name, value in sorted(progress.metrics.items()))
    return (
        f"step {progress.step}/{progress.total_steps}  epoch {progress.epoch}  loss {loss}  "
        f"{progress.workers} workers  {progress.throughput:.0f} samples/s{metrics}"
    )
