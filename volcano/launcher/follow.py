# SPDX-License-Identifier: Apache-2.0
"""Follow a Job through one segment: its logs, its progress, why it waits, until it ends or is to be resized."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal

from kfp_volcano.elastic.autoscaler.commands import command
from kfp_volcano.elastic.autoscaler.contracts import progress_of
from kfp_volcano.elastic.autoscaler.execution import execute, open_request
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.elastic.autoscaler.limits import limits, overdue
from kfp_volcano.errors import ConflictError, JobFailedError, NotFoundError, UnavailableError
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.launcher.complaints import Complaints
from kfp_volcano.volcano.launcher.ending import Failures, explain_failure
from kfp_volcano.volcano.launcher.log_record import LogRecord
from kfp_volcano.volcano.launcher.logs import LogTail
from kfp_volcano.volcano.launcher.preflights import Preflights
from kfp_volcano.volcano.launcher.waiting import Waiting
from kfp_volcano.volcano.manifests.status import JobState, job_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.autoscaler.limits import Limit
    from kfp_volcano.schemas.records import Progress, ResizeRequest
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["follow"]

LOOK_S = 1.0
"""How often logs are read while nothing else happens."""


def follow(
    cluster: Cluster,
    ref: JobRef,
    *,
    holder: str | None,
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
        holder: Who follows, for the Lease. None only looks on: it changes nothing, neither the Job nor how far its logs
            count as printed, executes no resize and keeps no limit.
        heir: Whom the Lease goes to when a resize is requested.
        last: Execute requested resizes here and go on, for no resize step follows.
        clock: Unix seconds.
        say: Prints one line.

    A cluster that does not answer for a while is waited for.

    Raises:
        JobFailedError: The Job ended without success, or took too long; names the first failing container and its
            last lines.
        NotFoundError: The Job is gone.
    """
    following = _Following(cluster, ref, holder=holder, heir=heir, last=last, clock=clock, say=say)
    try:
        return following.run()
    finally:
        following.close()


class _Following:
    """One call of `follow`."""

    def __init__(
        self,
        cluster: Cluster,
        ref: JobRef,
        *,
        holder: str | None,
        heir: str,
        last: bool,
        clock: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._ref = ref
        self._heir = heir
        self._last = last
        self._clock = clock
        self._say = say
        self._informer = Informer(cluster, ("Job", "PodGroup", "Pod"), namespace=ref.namespace)
        self._informer.start()  # waits for a cluster that does not answer
        try:
            job = _job(self._informer, ref)
        except NotFoundError:
            self._informer.stop()
            raise
        self._lease: JobLease | None = None
        record = None
        if holder is not None:
            self._lease = JobLease(cluster, ref.namespace, ref.name, holder=holder, clock=clock)
            record = LogRecord(cluster, job, ref, by=f"{holder}:{uuid.uuid4().hex[:12]}")
        self._tail = LogTail(cluster, ref, record, say, clock=clock, wake=self._informer.wake)
        self._told = _Told(say)
        self._waiting = Waiting(cluster, clock)
        self._complaints = Complaints(cluster, ref, clock=clock, say=say)
        self._failures = Failures(cluster, ref.namespace)
        self._preflights = Preflights(cluster, clock, say)
        self._pending: tuple[Limit, ...] = ()

    def run(self) -> Literal["resized", "done"]:
        version, answered = 0, True
        while True:
            version = self._informer.wait(version, timeout_s=LOOK_S)
            try:
                outcome = self._look()
                answered = True
            except UnavailableError as error:
                # Training needs neither the API server nor this step: there is nothing to give up.
                outcome = None
                if answered:
                    self._say(f"the cluster does not answer; this step goes on when it does: {error}")
                answered = False
            if outcome is not None:
                return outcome

    def close(self) -> None:
        self._informer.stop()
        self._tail.close()

    def _look(self) -> Literal["resized", "done"] | None:
        """Print the news, and act on them; returns how the segment has ended, None while it goes on."""
        if self._lease:
            self._lease.renew_if_due()
        job, pods = _job(self._informer, self._ref), _pods(self._informer, self._ref)
        self._tail.pump(pods)
        self._failures.look(pods)
        self._told.tell(job, self._waiting.why(_podgroup(self._informer, job), pods))
        self._complaints.look()
        state = job_state(job)
        if state.final:
            # The watch of pods may lag behind the Job's: what has run must not go unread.
            selector = {"volcano.sh/job-name": self._ref.name}
            left = self._cluster.list("Pod", self._ref.namespace, selector)[0]
            self._failures.look(left)
            self._tail.finish(left)
            if self._lease:
                self._lease.release()
            if state is JobState.SUCCEEDED:
                return "done"
            reached = [limit.why for limit in self._pending if limit.at <= self._clock()]
            raise JobFailedError("\n".join([*reached, explain_failure(job, self._failures)]))
        self._pending = tuple(limits(job, pods))
        return self._act(self._lease, job, pods) if self._lease else None

    def _act(self, lease: JobLease, job: Manifest, pods: list[Manifest]) -> Literal["resized"] | None:
        """Do what is due for a Job that lives: its limits, its preflights, a resize that is asked for."""
        ended = _keep_limits(self._cluster, job, pods, self._clock(), self._say) or self._preflights.look(job, pods)
        if ended:
            lease.release()
            raise JobFailedError(f"{self._ref} was ended: {ended}")
        request = open_request(job, self._clock())
        if request is not None and not self._last:
            self._tail.settle()
            lease.hand_over(self._heir)
            return "resized"
        if request is not None and lease.held:
            self._resize(request, lease.holder)
        return None

    def _resize(self, request: ResizeRequest, holder: str) -> None:
        self._say(f"resize {request.from_workers} -> {counted(request.to_workers, 'worker')}: {request.explanation}")
        try:
            outcome = execute(self._cluster, self._ref.namespace, self._ref.name, holder=holder, clock=self._clock)
        except ConflictError as error:
            self._say(f"another is executing the resize: {error}")
            return
        self._say(f"resize {outcome.phase.value}: {counted(outcome.to_workers, 'worker')}. {outcome.message}".rstrip())


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
    raise NotFoundError(f"Job {ref} is gone: it was deleted while, or before, this step followed it")


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
        self._progress: Progress | None = None

    def tell(self, job: Manifest, why: str | None) -> None:
        state = job_state(job)
        if state is not self._state:
            self._state = state
            self._say(f"Job {job['metadata']['namespace']}/{job['metadata']['name']} is {state.value}")
        if why != self._why:
            self._why = why
            if why:
                self._say(f"it waits: {why}")
        progress = progress_of(job)
        if progress and progress != self._progress:
            self._progress = progress
            self._say(describe_progress(progress))


def describe_progress(progress: Progress) -> str:
    """Where training stands, in a line."""
    loss = "-" if progress.loss is None else f"{progress.loss:.4f}"
    metrics = "".join(f"  {name} {value:.4g}" for name, value in sorted(progress.metrics.items()))
    return (
        f"step {progress.step}/{progress.total_steps}  epoch {progress.epoch}  loss {loss}  "
        f"{counted(progress.workers, 'worker')}  {progress.throughput:.0f} samples/s{metrics}{_watched(progress)}"
    )


def _watched(progress: Progress) -> str:
    """What the training's watch has done, where that is something."""
    done = progress.watched
    if done is None:
        return ""
    told = [f"rolled back {done.rollbacks}x" if done.rollbacks else ""]
    told += [f"learning rate x {done.lr_factor:g}" if done.lr_factor != 1 else ""]
    told += ["asks for no more workers" if done.growth_stopped else ""]
    return "".join(f"  {each}" for each in told if each)
