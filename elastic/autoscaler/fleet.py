"""Leads any number of queues in one process: observe, decide, ask, execute; woken by changes, never polling.

It keeps nothing that the cluster does not hold: it may be killed at any line and started again anywhere.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kfp_volcano.elastic.autoscaler.index import ClusterIndex
    from kfp_volcano.elastic.autoscaler.queue_log import QueueLog
    from kfp_volcano.elastic.autoscaler.recorder import Recorder
    from kfp_volcano.elastic.policies.policy import Policy
    from kfp_volcano.elastic.policies.snapshot import Sample
    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["Fleet", "Metrics"]


class Metrics(Protocol):
    """Values from outside of the cluster's objects. Answers at once, with what was read last; must not raise."""

    def of_queue(self, queue: str) -> Mapping[str, float]:
        """External metrics, by name."""
        ...

    def of_pod(self, namespace: str, name: str) -> Mapping[str, Sample]:
        """What was measured of a worker's pod, by metric."""
        ...

    def utilisation(self, namespace: str, pods: Sequence[str]) -> float | None:
        """Mean utilisation of the GPUs of these pods, 0 to 1; None where it is not measured."""
        ...


class Fleet:
    """Leads queues, each as long as it holds the Lease for it.

    Args:
        cluster: Where.
        queues: Which queues, asked again whenever queues come, change or go.
        policies: The policy of a queue, asked each turn; usually a `Guarded` one.
        identity: Who this is, in Leases and records; unique among all that could lead.
        namespace: Whose Jobs are resized; Jobs of other namespaces only count as load. Empty: everywhere.
        home: Where its Leases are; by default `namespace`.
        recorders: Are told what was seen and done.
        metrics: Values from outside; None where there are none.
        log: The timeline of its queues; a queue is noted there also while another leads it.
        shared_namespace: Where an autoscaler for all namespaces would hold its Leases; while it holds a queue's, this
            one stands aside. None where there is none.
        only_for: A Job, as namespace/name, whose end ends `run`; None to run until stopped.
        clock: Unix seconds.
        new_id: Makes the ids of requests.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        queues: Callable[[ClusterIndex], Iterable[str]],
        policies: Callable[[str], Policy],
        identity: str,
        namespace: str = "",
        home: str | None = None,
        recorders: Sequence[Recorder] = (),
        metrics: Metrics | None = None,
        log: QueueLog | None = None,
        shared_namespace: str | None = None,
        only_for: str | None = None,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
    ) -> None:
        raise NotImplementedError("on its way")

    def run(self) -> None:
        """Turn after turn, until stopped or the Job it is for has ended; the Leases are given back then.

        Raises a ClusterError where the cluster cannot be watched: to be run again, for it keeps nothing.
        """

    def stop(self) -> None:
        """End `run` soon; to be called from another thread or a signal handler."""

    def wake(self) -> None:
        """Look at all queues soon, for a reason outside of the cluster: policies or metrics have changed."""

    @property
    def led(self) -> frozenset[str]:
        """The queues that it leads at this moment."""
        return frozenset()

    @property
    def stale_since(self) -> float | None:
        """Since when it does not see the cluster, Unix seconds; None while it does."""
        return None

    @property
    def turned_at(self) -> float:
        """When it last went round, Unix seconds: a live one does so at least every 15 s."""
        return 0.0
