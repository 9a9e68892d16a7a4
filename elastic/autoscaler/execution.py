# SPDX-License-Identifier: Apache-2.0
"""Carry out a Job's resize, from wherever it stands to its end.

The library function behind the DAG's resize step, the last train step and the command line; the autoscaler takes the
same steps (`advance`) between its other work. Any number may call it for one Job: the holder of the Job's Lease acts,
the others watch, and take over when the Lease runs out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.contracts import find_job, latest_outcome, open_request, request_of
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.elastic.autoscaler.resizing import READY_S, Step, next_step, refused
from kfp_volcano.errors import ConflictError, InvalidError, NotFoundError, ResizeError, UnavailableError
from kfp_volcano.volcano.cluster.informer import Informer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.schemas.records import ResizeOutcome
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["advance", "execute", "latest_outcome", "newer", "open_request"]

RETRY_S = 2.0
"""Before the next try when the cluster gave no answer, seconds."""
MOST_RETRIES = 60


def execute(
    cluster: Cluster,
    namespace: str,
    name: str,
    *,
    holder: str,
    clock: Callable[[], float] = time.time,
    ready_timeout_s: float = READY_S,
    informer: Informer | None = None,
) -> ResizeOutcome:
    """Execute the Job's resize, or go on with it where another left off, until it has its final outcome.

    A resize that has it already is not executed again: its outcome is returned. While another holds the Job's Lease
    this only watches. The Lease goes back afterwards, unless `holder` had it before, or is a run (`run:<run id>`), for
    whose next step it stays.

    Args:
        cluster: Where the Job is.
        namespace: The Job's namespace.
        name: The Job's name.
        holder: Who executes, for the Lease and the record.
        clock: Unix seconds.
        ready_timeout_s: How long workers that have a node may take to run.
        informer: Where the caller watches Jobs and Pods of the namespace already; by default this watches by itself.

    Raises:
        ResizeError: Nobody asked for a resize, or the Job is gone.
        ClusterError: The cluster refused, or gave no answer for minutes.
    """
    lease = JobLease(cluster, namespace, name, holder=holder, clock=clock)
    lease.look()
    keeps_lease = lease.held or holder.startswith("run:")
    watched = informer or Informer(cluster, ("Job", "Pod"), namespace=namespace)
    if informer is None:
        watched.start()
    try:
        return _Execution(cluster, watched, lease, namespace, name, holder, clock, ready_timeout_s).run()
    finally:
        if informer is None:
            watched.stop()
        if not keeps_lease:
            lease.release()


@dataclass
class _Execution:
    """One call of `execute`."""

    cluster: Cluster
    informer: Informer
    lease: JobLease
    namespace: str
    name: str
    holder: str
    clock: Callable[[], float]
    ready_s: float
    job: Manifest | None = None

    def run(self) -> ResizeOutcome:
        version, failures = 0, 0
        while True:
            try:
                step = self._step()
                if step.patch is None and step.outcome is not None and step.outcome.phase.final:
                    return step.outcome
                acts = self.lease.renew_if_due()
                if acts and step.patch is not None and self.job is not None:
                    self.job = advance(self.cluster, self.job, step, by=self.holder, now=self.clock())
                    failures = 0
                    continue
                wait_s = self._look_at(step if acts else Step()) - self.clock()
            except ConflictError:
                self.job = None
                continue
            except NotFoundError as error:
                message = f"{self.namespace}/{self.name} is gone: it was deleted while it was being resized"
                raise ResizeError(message) from error
            except UnavailableError:
                failures += 1
                if failures > MOST_RETRIES:
                    raise
                wait_s = RETRY_S
            version = self.informer.wait(version, timeout_s=max(0.0, wait_s))

    def _step(self) -> Step:
        """What is to be done next for the Job as it is known now."""
        seen = find_job(self.informer.objects("Job"), self.namespace, self.name) if self.job is not None else None
        if seen is None:
            seen = self.cluster.get("Job", self.name, self.namespace)
        self.job = seen if self.job is None else newer(seen, self.job)
        pods = self.informer.objects("Pod")
        step = next_step(self.job, pods, by=self.holder, now=self.clock(), ready_s=self.ready_s)
        if step.outcome is None:
            raise ResizeError(f"{self.namespace}/{self.name}: nobody has asked for a resize: there is none to execute")
        return step

    def _look_at(self, step: Step) -> float:
        """When to look again if nothing changes: to renew the Lease, or take it, or because a time limit ends."""
        return self.lease.due_at if step.look_at is None else min(self.lease.due_at, step.look_at)


def advance(cluster: Cluster, job: Manifest, step: Step, *, by: str, now: float) -> Manifest:
    """Apply a step's patch; returns the Job as it is then.

    What admission refuses is answered with a refusal. Raises ConflictError when the Job is not as the step assumed:
    look again.
    """
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    try:
        return cluster.patch("Job", name, namespace, step.patch or [])
    except InvalidError as error:
        request = request_of(job)
        if request is None or step.outcome is None or step.outcome.id != request.id:
            raise
        return cluster.patch("Job", name, namespace, refused(job, request, str(error), by=by, now=now))


def newer(one: Manifest, other: Manifest) -> Manifest:
    """The later of two readings of one object; the first where they are equal.

    Resource versions grow with every change of an object: the Kubernetes API has promised that they compare as
    numbers since 1.35 (KEP-5504), and etcd's revisions always did.
    """
    if one["metadata"].get("uid") != other["metadata"].get("uid"):
        return one
    return one if _version(one) >= _version(other) else other


def _version(manifest: Manifest) -> int:
    text = str(manifest["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0
