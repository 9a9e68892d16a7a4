# SPDX-License-Identifier: Apache-2.0
"""Whether this autoscaler leads a queue: by a Lease of the queue, unless a shared autoscaler goes first."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.lease import Lease
from kfp_volcano.errors import ForbiddenError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["LEAD_S", "Leadership", "lease_name"]

LEAD_S = 15.0
"""How long a queue's Lease holds without being renewed, seconds; renewed after a third of it.

So a leader that was killed is replaced in 10 to 15 s, and one whose clock is some seconds off keeps what it has. For
100 queues that is 20 writes a second, a tenth of what the heartbeats of 2,000 nodes are.
"""


def lease_name(queue: str) -> str:
    """The Lease of the autoscaler that leads a queue, one in each namespace."""
    return f"kfp-volcano-autoscaler-{queue}"


class Leadership:
    """Of one queue.

    Args:
        cluster: Where the Leases are.
        queue: The queue.
        home: The Lease's namespace.
        holder: Who this is.
        shared_namespace: Where an autoscaler for all namespaces would hold its Lease; None where there is none.
        clock: Unix seconds.
        spread: From [0, 1): by which part of its time the first renewal is early, so that many Leases that were taken
            at once are not renewed at once for ever.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: str,
        *,
        home: str,
        holder: str,
        shared_namespace: str | None,
        clock: Callable[[], float],
        spread: float = 0.0,
    ) -> None:
        self.queue = queue
        self._home = home
        self._lease = Lease(cluster, home, lease_name(queue), holder=holder, clock=clock, term_s=LEAD_S)
        self._shared = (
            Lease(cluster, shared_namespace, lease_name(queue), holder=holder, clock=clock)
            if shared_namespace
            else None
        )
        self._early_s = spread * LEAD_S / 3
        self._look_aside_at = 0.0
        self._aside = False
        self._due_at = 0.0
        self._clock = clock
        self._lock = threading.Lock()

    @property
    def held(self) -> bool:
        """Whether it leads, as far as known, at this moment."""
        return not self._aside and self._lease.held

    @property
    def due_at(self) -> float:
        """When `renew` will do something again, Unix seconds."""
        return self._look_aside_at if self._aside else self._due_at

    def renew(self, now: float) -> bool:
        """Take the Lease or keep it, where that is due. Returns whether it leads.

        Raises a ClusterError where there is no answer, or no Lease can be made.
        """
        with self._lock:
            return self._renewed(now) if now >= self.due_at else self.held

    def keep(self) -> bool:
        """The same, due or not; by a thread of its own while another asks whether it is `held`."""
        with self._lock:
            return self._renewed(self._clock())

    def release(self) -> None:
        """Give it back, so that another need not wait for its end."""
        with self._lock:
            self._lease.release()

    def _renewed(self, now: float) -> bool:
        if self._shared is not None and now >= self._look_aside_at:
            self._aside = _is_held(self._shared, now)
            self._look_aside_at = now + LEAD_S / 3
        if self._aside:
            self._lease.release()
            return False
        self._lease.hold()
        self._due_at, self._early_s = self._lease.due_at - self._early_s, 0.0
        if self._lease.term is None:
            raise UnavailableError(f"no Lease can be made in the namespace {self._home}: is it there?")
        return self._lease.held


def _is_held(lease: Lease, now: float) -> bool:
    """Whether an autoscaler of all namespaces leads. Where one is installed all may look, so who may not has none."""
    try:
        term = lease.look()
    except ForbiddenError:
        return False
    return term is not None and term.holds(now)
