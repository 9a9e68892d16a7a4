# SPDX-License-Identifier: Apache-2.0
"""What a follower does about pods whose preflight failed, and says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.commands import command
from kfp_volcano.elastic.autoscaler.moving import carry_out, marked_nodes, release_expired
from kfp_volcano.elastic.autoscaler.unfit import Restart, TakeAway, actions, failure_of, told
from kfp_volcano.errors import ForbiddenError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["Preflights"]

OTHERS_S = 30.0
"""How long one that may not mark nodes leaves a pod to others that may, seconds."""
SWEEP_S = 60.0
"""How often marks are looked at whose time may be over."""


class Preflights:
    """Looks at a Job's pods, turn by turn.

    Args:
        cluster: Where the Job is.
        clock: Unix seconds.
        say: Prints one line.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float], say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._say = say
        self._barred_since: float | None = None
        self._sweep_at = 0.0

    def look(self, job: Manifest, pods: Sequence[Manifest]) -> str | None:
        """Move pods whose preflight failed to other nodes; returns why the Job was ended, if it was."""
        now = self._clock()
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_S
            release_expired(self._cluster, now)
        if not any(map(failure_of, pods)):
            self._barred_since = None
            return None
        wanted = actions(job, pods, marked_nodes(self._cluster), now)
        try:
            failed = carry_out(self._cluster, job, wanted)
        except ForbiddenError as error:
            return self._without_right(job, pods, error, now)
        if failed is None:
            for failure in filter(None, map(failure_of, pods)):
                if TakeAway(failure.pod, failure.uid) in wanted or Restart() in wanted:
                    self._say(f"preflight of {told(failure)}\n  another node is tried")
        return failed.why if failed else None

    def _without_right(self, job: Manifest, pods: Sequence[Manifest], error: ForbiddenError, now: float) -> str | None:
        self._barred_since = now if self._barred_since is None else self._barred_since
        if now < self._barred_since + OTHERS_S:
            return None
        failure = next(filter(None, map(failure_of, pods)))
        reason = f"no other node is tried, for nodes may not be marked: {error}"
        why = f"its preflight failed, and {reason}\n  {told(failure)}"
        command(self._cluster, job, "TerminateJob", why)
        return why
