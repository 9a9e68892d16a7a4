# SPDX-License-Identifier: Apache-2.0
"""What the autoscaler does for Jobs beside resizing them: keeps their limits, and takes their pods off unfit nodes.

A follower does the same while there is one; nothing depends on it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.commands import command
from kfp_volcano.elastic.autoscaler.contracts import job_key
from kfp_volcano.elastic.autoscaler.limits import overdue
from kfp_volcano.elastic.autoscaler.moving import carry_out, release_expired
from kfp_volcano.elastic.autoscaler.unfit import actions, expiry
from kfp_volcano.errors import ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts
    from kfp_volcano.elastic.autoscaler.observing.pod_facts import PodFacts
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["Keeper"]

BARRED_S = 300.0
"""Before the next try of one that was not allowed to mark nodes, seconds."""

_log = logging.getLogger(__name__)


class Keeper:
    """Looks at Jobs, turn by turn; never waits.

    Args:
        cluster: Where the Jobs are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._barred_until = 0.0

    def look(self, job: JobFacts, pods: Sequence[PodFacts], marked: Sequence[Manifest], now: float) -> float | None:
        """Do for a Job what is due; it is read only where something is.

        Args:
            job: What is known of it.
            pods: What is known of its pods.
            marked: The nodes that are marked as unfit.
            now: Unix seconds.

        Returns when to look again, Unix seconds; None if only a change gives reason to.
        """
        limit_at = job.limit_at if pods else job.limit_without_pods_at
        unfit = [pod for pod in pods if pod.unfit]
        if unfit or (limit_at is not None and limit_at <= now):
            with suppress(NotFoundError):
                self._keep(job.key, pods, unfit, marked, now)
        return limit_at if limit_at is not None and limit_at > now else None

    def release(self, marked: Iterable[Manifest], now: float) -> float | None:
        """Take marks off nodes whose time is over. Returns when the next one is, Unix seconds."""
        ends = [at for node in marked if (at := expiry(node)) is not None]
        if any(at <= now for at in ends):
            release_expired(self._cluster, now)
        return min((at for at in ends if at > now), default=None)

    def _keep(
        self, key: str, pods: Sequence[PodFacts], unfit: Sequence[PodFacts], marked: Sequence[Manifest], now: float
    ) -> None:
        namespace, _, name = key.partition("/")
        job = self._cluster.get("Job", name, namespace)
        limit = overdue(job, [pod.manifest() for pod in pods], now)
        if limit is not None:
            _log.info("%s: %s: %s", key, limit.verb, limit.why)
            command(self._cluster, job, limit.verb, limit.why)
        if unfit and now >= self._barred_until:
            pods_of_job, _ = self._cluster.list("Pod", namespace, {"volcano.sh/job-name": name})
            names = {pod.name for pod in unfit}
            failed = [pod for pod in pods_of_job if pod["metadata"]["name"] in names]
            self._see_to_nodes(job, failed, marked, now)

    def _see_to_nodes(self, job: Manifest, pods: Sequence[Manifest], nodes: Sequence[Manifest], now: float) -> None:
        wanted = actions(job, pods, nodes, now)
        try:
            failed = carry_out(self._cluster, job, wanted)
        except ForbiddenError as error:
            _log.warning("%s: nodes cannot be marked, this is left to who follows the Job: %s", job_key(job), error)
            self._barred_until = now + BARRED_S
        else:
            for action in wanted:
                _log.info("%s: %s", job_key(job), failed.why if failed else action)
