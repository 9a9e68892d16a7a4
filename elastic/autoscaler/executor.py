# SPDX-License-Identifier: Apache-2.0
"""One autoscaler's hand on Jobs: puts requests on them, and executes what nobody else does.

Nothing here is needed to go on after a death: what is kept are Leases, and copies of what the cluster has just stored.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.contracts import answered, job_key, read, request_of
from kfp_volcano.elastic.autoscaler.execution import advance
from kfp_volcano.elastic.autoscaler.lease import JobLease
from kfp_volcano.elastic.autoscaler.observing.pod_facts import created_at, version_of
from kfp_volcano.elastic.autoscaler.resizing import next_step, refused, request_patch
from kfp_volcano.errors import ClusterError, ConflictError, InvalidError, NotFoundError, ResizeError
from kfp_volcano.schemas.names import OWNER
from kfp_volcano.schemas.records import Owner, Phase, ResizeRequest
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.manifests.resize import workers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kfp_volcano.elastic.policies.policy import Decision
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["FOLLOWER_S", "REQUEST_S", "Executor"]

REQUEST_S = 600.0
"""How long a request waits for somebody to carry it out, seconds."""
FOLLOWER_S = 60.0
"""How long after its creation a Job's first follower may take to come, seconds: until then requests are left to it."""

_log = logging.getLogger(__name__)


class Executor:
    """Asks for resizes and takes them as far as they go, turn by turn; never waits.

    Args:
        cluster: Where the Jobs are.
        identity: Who this is, in Leases and records.
        clock: Unix seconds.
        new_id: Makes the ids of requests.
        wrote: Is told of each Job as it was read or written here, which may be before the watch tells of it.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        identity: str,
        clock: Callable[[], float],
        new_id: Callable[[], str],
        wrote: Callable[[Manifest], None],
    ) -> None:
        self._cluster = cluster
        self._identity = identity
        self._clock = clock
        self._new_id = new_id
        self._wrote = wrote
        self._leases: dict[str, JobLease] = {}
        self._copies: dict[str, Manifest] = {}
        """Of Jobs whose resizes are open."""

    @property
    def concerned(self) -> Collection[str]:
        """Jobs that it has something to do with."""
        return self._copies.keys() | self._leases.keys()

    def ask(self, decision: Decision, version: int, now: float) -> str | None:
        """Put a decision on its Job as a request; an urgent one is carried out by that.

        `version`: that of the Job as it was decided on. Returns the request's id, or None where there is none now: the
        last one is not answered, or the Job has changed.
        """
        try:
            job = self._read(decision.job, version)
            if not answered(job) or workers(job) != decision.from_workers:
                return None
            request = ResizeRequest(
                id=self._new_id(),
                from_workers=decision.from_workers,
                to_workers=decision.to_workers,
                reason=decision.reason.value,
                explanation=decision.explanation,
                policy=decision.policy,
                by=self._identity,
                at=now,
                expires=now + REQUEST_S,
                urgent=decision.urgent,
            )
            try:
                self._patch(job, request_patch(job, request, by=self._identity, now=now))
            except (InvalidError, ResizeError) as error:
                self._patch(job, refused(job, request, str(error), by=self._identity, now=now))
        except (ConflictError, NotFoundError):
            self._copies.pop(decision.job, None)
            return None
        return request.id

    def drive(self, key: str, version: int, pods: Sequence[Manifest], now: float) -> float | None:
        """Take a Job's resize as far as it goes now, unless another does.

        Args:
            key: The Job, as namespace/name.
            version: That of the Job as far as is known: an older copy is read anew.
            pods: The Job's pods.
            now: Unix seconds.

        Returns when to look again, Unix seconds; None if only a change of the Job or its pods gives reason to.
        """
        try:
            return self._drive(self._read(key, version), pods, now)
        except (ConflictError, NotFoundError):
            self._copies.pop(key, None)
            return None

    def forget(self, key: str) -> None:
        """A Job is gone, and its Lease with it."""
        self._copies.pop(key, None)
        self._leases.pop(key, None)

    def _drive(self, job: Manifest, pods: Sequence[Manifest], now: float) -> float | None:
        while True:
            step = next_step(job, pods, by=self._identity, now=now)
            if step.outcome is None or (step.patch is None and step.outcome.phase.final):
                self._let_go(job)
                return None
            # That a request has expired may be said by anybody: whoever was to carry it out can only be late.
            if step.outcome.phase is not Phase.EXPIRED:
                not_before = self._not_ours_before(job, now)
                if not_before is not None:
                    request = request_of(job)
                    return min(not_before, request.expires) if request and request.expires > now else not_before
            if step.patch is None:
                due_at = self._leases[job_key(job)].due_at
                return due_at if step.look_at is None else min(due_at, step.look_at)
            job = advance(self._cluster, job, step, by=self._identity, now=now)
            self._keep(job)

    def give_back(self) -> None:
        """Give back all Leases, so that others need not wait for their end."""
        try:
            for lease in self._leases.values():
                lease.release()
        except ClusterError as error:
            _log.warning("a Job's Lease was not given back and will run out: %s", error)

    def _not_ours_before(self, job: Manifest, now: float) -> float | None:
        """None if the Job's resize is ours to execute, else when to ask again."""
        key, request = job_key(job), request_of(job)
        if key not in self._leases:
            namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
            self._leases[key] = JobLease(self._cluster, namespace, name, holder=self._identity, clock=self._clock)
        lease, followed_by = self._leases[key], _followed_by(job)
        if lease.term is None and request is not None and now < followed_by and lease.look() is None:
            return followed_by
        return None if lease.renew_if_due() else lease.due_at

    def _let_go(self, job: Manifest) -> None:
        self._copies.pop(job_key(job), None)
        lease = self._leases.pop(job_key(job), None)
        if lease is not None:
            lease.release()

    def _read(self, key: str, version: int) -> Manifest:
        job = self._copies.get(key)
        if job is None or version_of(job) < version:
            namespace, _, name = key.partition("/")
            job = self._cluster.get("Job", name, namespace)
            self._keep(job)
        return job

    def _patch(self, job: Manifest, patch: list[dict[str, object]]) -> None:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        self._keep(self._cluster.patch("Job", name, namespace, patch))

    def _keep(self, job: Manifest) -> None:
        self._copies[job_key(job)] = job
        self._wrote(job)


def _followed_by(job: Manifest) -> float:
    """Until when a Job's first follower may come, Unix seconds."""
    owner = read(Owner, annotation(job, OWNER))
    return created_at(job) + (FOLLOWER_S if owner is None or owner.has_follower else 0.0)
