"""The autoscaler of one queue: observe, decide, ask, execute; woken by changes, never polling.

It keeps nothing that the cluster does not hold: it may be killed at any line and started again anywhere.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.contracts import find_job, job_key
from kfp_volcano.elastic.autoscaler.executor import Executor
from kfp_volcano.elastic.autoscaler.keeping import Keeper
from kfp_volcano.elastic.autoscaler.lease import TERM_S, Lease
from kfp_volcano.elastic.autoscaler.observation import WATCHED, QueueView
from kfp_volcano.elastic.autoscaler.unfit import marked
from kfp_volcano.elastic.policies.guards import next_change
from kfp_volcano.errors import ClusterError, ForbiddenError, UnavailableError
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.manifests.status import job_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.autoscaler.queue_log import QueueLog
    from kfp_volcano.elastic.policies.policy import Policy
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["QueueAutoscaler", "lease_name"]

STALE_S = 30.0
"""How long a view of the cluster may not have been refreshed before it is given up, seconds."""
RETRY_S = 2.0
"""Before the next turn when the cluster gave no answer, seconds."""

_log = logging.getLogger(__name__)


def lease_name(queue: str) -> str:
    """The Lease of the autoscaler that leads a queue, one in each namespace."""
    return f"kfp-volcano-autoscaler-{queue}"


class QueueAutoscaler:
    """Leads a queue in a namespace, as long as it holds the Lease for it.

    Args:
        cluster: Where.
        namespace: Whose Jobs are resized; Jobs of other namespaces only count as load.
        queue: The queue.
        policy: Decides; usually a `Guarded` one.
        identity: Who this is, in Leases and records; unique among all that could lead.
        log: The queue's timeline, None for none; the queue is noted also while another leads.
        shared_namespace: Where an autoscaler for all namespaces would hold its Lease; while it does, this one stands
            aside. None where there is none.
        only_for: A Job, as namespace/name, whose end ends `run`; None to run until stopped.
        informer: What watches the kinds of `WATCHED`, of all namespaces; by default one of its own.
        clock: Unix seconds.
        new_id: Makes the ids of requests.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        queue: str,
        policy: Policy,
        identity: str,
        log: QueueLog | None = None,
        shared_namespace: str | None = None,
        only_for: str | None = None,
        informer: Informer | None = None,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._queue = queue
        self._policy = policy
        self._identity = identity
        self._log = log
        self._only_for = only_for
        self._clock = clock
        self._informer = informer or Informer(cluster, WATCHED)
        self._lead = Lease(cluster, namespace, lease_name(queue), holder=identity, clock=clock)
        self._shared = (
            Lease(cluster, shared_namespace, lease_name(queue), holder=identity, clock=clock)
            if shared_namespace
            else None
        )
        self._look_aside_at = 0.0
        self._aside = False
        self._keeper = Keeper(cluster)
        self._executor = Executor(cluster, identity=identity, clock=clock, new_id=new_id)
        self._stopped = threading.Event()

    def run(self) -> None:
        """Turn after turn, until stopped or the Job it is for has ended; the Lease is given back then.

        Raises a ClusterError where the cluster cannot be watched: to be run again, for it keeps nothing.
        """
        self._informer.start()
        version = 0
        try:
            while not self._stopped.is_set() and not self._job_is_over():
                self._check_view()
                look_at = self.turn()
                version = self._informer.wait(version, timeout_s=max(0.0, look_at - self._clock()))
        finally:
            self._informer.stop()
            self._give_back()

    def stop(self) -> None:
        """End `run` soon; to be called from another thread or a signal handler."""
        self._stopped.set()
        self._informer.stop()

    def turn(self) -> float:
        """Look once and do what is to be done. Returns when to look again at the latest, Unix seconds."""
        try:
            return self._turn()
        except ClusterError as error:
            _log.warning("queue %s: %s: looking again in %.0f s", self._queue, error, RETRY_S)
            return self._clock() + RETRY_S

    def _turn(self) -> float:
        now = self._clock()
        objects = {kind: self._informer.objects(kind) for kind in WATCHED}
        jobs = objects["Job"] = self._executor.latest(objects["Job"])
        view = QueueView(objects, self._queue)
        if self._log:
            self._log.queue(view.timeline_entry(now))
        if not self._leads(now):
            return self._look_aside_at if self._aside else max(self._lead.due_at, now + RETRY_S)
        snapshot = view.snapshot(now, self._namespace)
        by_key = {job_key(job): job for job in jobs}
        for decision in self._policy.decide(snapshot):
            request = self._executor.ask(by_key[decision.job], decision, now) if decision.resizes else None
            if self._log:
                self._log.decision(decision, now, request)
        looks = [self._lead.due_at, next_change(snapshot)]
        ours = [job for job in jobs if self._ours(job)]
        looks += [self._executor.drive(job, objects["Pod"], now) for job in ours]
        nodes = marked(objects["Node"])  # few, and the same for each Job
        looks += [self._keeper.keep(job, view.pods_of(job), nodes, now) for job in ours]
        return min(at for at in looks if at is not None)

    def _check_view(self) -> None:
        stale_since = self._informer.stale_since
        if stale_since is not None and self._clock() - stale_since > STALE_S:
            raise UnavailableError(f"the cluster has not been seen for {STALE_S:.0f} s")

    def _leads(self, now: float) -> bool:
        if self._shared is not None and now >= self._look_aside_at:
            self._aside = _is_held(self._shared, now)
            self._look_aside_at = now + TERM_S / 3
        if self._aside:
            self._lead.release()
            return False
        return self._lead.renew_if_due()

    def _ours(self, job: Manifest) -> bool:
        in_queue = job["spec"].get("queue", "default") == self._queue
        return in_queue and self._namespace in {"", job["metadata"]["namespace"]}

    def _job_is_over(self) -> bool:
        if self._only_for is None or self._informer.stale_since is not None:
            return False
        job = find_job(self._informer.objects("Job"), *self._only_for.split("/", 1))
        return job is None or job_state(job).final

    def _give_back(self) -> None:
        self._executor.give_back()
        try:
            self._lead.release()
        except ClusterError as error:
            _log.warning("queue %s: the Lease was not given back and will run out: %s", self._queue, error)


def _is_held(lease: Lease, now: float) -> bool:
    """Whether an autoscaler of all namespaces leads. Where one is installed all may look, so who may not has none."""
    try:
        term = lease.look()
    except ForbiddenError:
        return False
    return term is not None and term.holds(now)
