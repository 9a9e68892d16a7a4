"""What the autoscaler does for Jobs beside resizing them: keeps their limits, and takes their pods off unfit nodes.

A follower does the same while there is one; nothing depends on it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.commands import command
from kfp_volcano.elastic.autoscaler.contracts import job_key
from kfp_volcano.elastic.autoscaler.limits import limits, overdue
from kfp_volcano.elastic.autoscaler.moving import carry_out
from kfp_volcano.elastic.autoscaler.unfit import actions, expiry
from kfp_volcano.errors import ForbiddenError

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def keep(self, job: Manifest, pods: Sequence[Manifest], nodes: Sequence[Manifest], now: float) -> float | None:
        """Do for a Job what is due.

        Returns when to look again, Unix seconds; None if only a change gives reason to.
        """
        limit = overdue(job, pods, now)
        if limit is not None:
            _log.info("%s: %s: %s", job_key(job), limit.verb, limit.why)
            command(self._cluster, job, limit.verb, limit.why)
        if now >= self._barred_until:
            self._see_to_nodes(job, pods, nodes, now)
        looks = [limit.at for limit in limits(job, pods)]
        looks += [at for node in nodes if (at := expiry(node)) is not None]
        return min((at for at in looks if at > now), default=None)

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
