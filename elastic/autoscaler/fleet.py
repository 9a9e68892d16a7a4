# SPDX-License-Identifier: Apache-2.0
"""Leads any number of queues in one process: observe, decide, ask, execute; woken by changes, never polling.

A queue in which something has changed has its turn at once. One that only shares nodes or a parent with a change has
one when it is hungry, at most once a second, and all of these together at a steady rate; every queue has one now and
then, as HPA's controller looks at each of its objects.

It keeps nothing that the cluster does not hold: it may be killed at any line and started again anywhere.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.agenda import Agenda, Pace
from kfp_volcano.elastic.autoscaler.executor import Executor
from kfp_volcano.elastic.autoscaler.keeping import Keeper
from kfp_volcano.elastic.autoscaler.leading import LEAD_S, Leadership
from kfp_volcano.elastic.autoscaler.observing.view import ClusterView
from kfp_volcano.elastic.autoscaler.telling.teller import Teller
from kfp_volcano.elastic.autoscaler.turns import Metrics, Standpoint, Turns
from kfp_volcano.errors import ClusterError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kfp_volcano.elastic.autoscaler.observing.index import Changes, ClusterIndex
    from kfp_volcano.elastic.autoscaler.observing.view import View
    from kfp_volcano.elastic.autoscaler.telling.queue_log import QueueLog
    from kfp_volcano.elastic.autoscaler.telling.recorder import Recorder
    from kfp_volcano.elastic.autoscaler.tending import Tender
    from kfp_volcano.elastic.policies.guards import Guarded
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["HUNGRY_AT_ONCE", "HUNGRY_PER_S", "HUNGRY_S", "LOOK_S", "STALE_S", "Fleet", "Metrics"]

LOOK_S = 15.0
"""How long a queue is left alone at most, seconds: HPA's sync period."""
STALE_S = 120.0
"""How long a view of the cluster may not have been refreshed before it is given up, seconds.

Longer than until policies stop (`GuardSettings.stale_s`), so that they can say so, and than a watch of a quiet kind
takes to show that it works again.
"""
RETRY_S = 2.0
"""Before the next turn of a queue whose last one failed, seconds."""
HUNGRY_S = 1.0
"""Least time between two turns of a queue that nothing but others' changes give reason for."""
_FEW, _RENEWERS = 8, 4
"""Leases of more queues than a few are renewed by so many threads beside the turns."""
_LARGE = 10_000
"""From so many Jobs and pods on the garbage collector takes tenths of seconds to look through them."""
HUNGRY_PER_S, HUNGRY_AT_ONCE = 5.0, 2
"""Turns of such queues together, a second: what a change costs is not to grow with the number of queues."""

_log = logging.getLogger(__name__)


class Fleet:
    """Leads queues, each as long as it holds the Lease for it.

    Args:
        cluster: Where.
        queues: Which queues, asked again whenever queues come, change or go, and when it is woken.
        policies: The policy of a queue within its guards, asked each turn.
        identity: Who this is, in Leases and records; unique among all that could lead.
        namespace: Whose Jobs are resized; Jobs of other namespaces only count as load. Empty: everywhere.
        home: Where its Leases are; by default `namespace`.
        recorders: Are told what was seen and done.
        metrics: Values from outside; None where there are none.
        tender: Sees to classes and requests of its queues' Jobs; None where nobody does.
        log: The timeline of its queues; a queue is noted there also while another leads it.
        shared_namespace: Where an autoscaler for all namespaces would hold its Leases; while it holds a queue's, this
            one stands aside. None where there is none.
        only_for: A Job, as namespace/name, whose end ends `run`; None to run until stopped.
        view: What it sees; by default one of its own.
        clock: Unix seconds.
        new_id: Makes the ids of requests.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        queues: Callable[[ClusterIndex], Iterable[str]],
        policies: Callable[[str], Guarded],
        identity: str,
        namespace: str = "",
        home: str | None = None,
        recorders: Sequence[Recorder] = (),
        metrics: Metrics | None = None,
        tender: Tender | None = None,
        log: QueueLog | None = None,
        shared_namespace: str | None = None,
        only_for: str | None = None,
        view: View | None = None,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
    ) -> None:
        self._cluster = cluster
        self._queues = queues
        self._identity = identity
        self._home = namespace if home is None else home
        self._log = log
        self._shared_namespace = shared_namespace
        self._only_for = only_for
        self._clock = clock
        self._view = view or ClusterView(cluster, clock=clock)
        self._keeper = Keeper(cluster)
        self._executor = Executor(cluster, identity=identity, clock=clock, new_id=new_id, wrote=self._wrote)
        self._teller = Teller(recorders)
        self._turns = Turns(
            self._view,
            policies,
            executor=self._executor,
            keeper=self._keeper,
            teller=self._teller,
            metrics=metrics,
            tender=tender,
            log=log,
            namespace=namespace,
            clock=clock,
        )
        self._leaderships: dict[str, Leadership] = {}
        self._standpoints: dict[str, Standpoint] = {}
        self._looks, self._renewals = Agenda(), Agenda()
        self._errands: dict[str, None] = {}
        """Queues whose Jobs have to be seen to after their turn, in this order."""
        self._release_at = 0.0
        self._pace = Pace(per_s=HUNGRY_PER_S, burst=HUNGRY_AT_ONCE)
        self._turned_at = 0.0
        self._begun = self._runs = False
        self._renewers: ThreadPoolExecutor | None = None
        self._woken = threading.Event()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Turn after turn, until stopped or the Job it is for has ended; the Leases are given back then.

        Raises a ClusterError where the cluster cannot be watched: to be run again, for it keeps nothing.
        """
        self._view.start()
        self._spare_collector()
        self._runs = True
        version = 0
        try:
            while not self._stopped.is_set() and not self._job_is_over():
                self._check_view()
                look_at = self.turn()
                version = self._view.wait(version, timeout_s=max(0.0, look_at - self._clock()))
            if not self._stopped.is_set():
                self.turn()  # which tells of the Job's end
        finally:
            gc.unfreeze()
            self._view.stop()
            if self._renewers is not None:
                self._renewers.shutdown(cancel_futures=True)
            self._give_back()

    def _spare_collector(self) -> None:
        """Of a large cluster, let nobody look for garbage in what has just been read: turns would wait for that."""
        with self._view.reading() as stamped:
            large = stamped is not None and stamped.index.size > _LARGE
        if large:
            gc.collect()
            gc.freeze()

    def stop(self) -> None:
        """End `run` soon; to be called from another thread or a signal handler."""
        self._stopped.set()
        self._view.stop()

    def wake(self) -> None:
        """Look at all queues soon, for a reason outside of the cluster: policies, metrics, what it leads."""
        self._woken.set()
        self._view.wake()

    @property
    def led(self) -> frozenset[str]:
        """The queues that it leads at this moment."""
        return frozenset(queue for queue, leadership in self._leaderships.copy().items() if leadership.held)

    @property
    def stale_since(self) -> float | None:
        """Since when it does not see the cluster, Unix seconds; None while it does."""
        return self._view.stale_since

    @property
    def turned_at(self) -> float:
        """When it last went round, Unix seconds: a live one does so at least every 15 s."""
        return self._turned_at

    def turn(self) -> float:
        """Look at the queues that have reason to be looked at, and do what is to be done.

        Returns when to look again at the latest, Unix seconds.
        """
        now = self._turned_at = self._clock()
        with self._view.reading() as stamped:
            if stamped is None:
                return now + RETRY_S
            since, stamped.since = now if stamped.since is None else stamped.since, None
            changes = stamped.index.changes()
            ask = changes.tree or not self._begun or self._woken.is_set()
            wanted = set(self._queues(stamped.index)) if ask else None
        if wanted is not None:
            self._follow(wanted, now)
        touched = self._touched(changes, now)
        for queue in sorted(touched):
            self._look(queue, now, since)
        # One at a time of what is merely due: what has changed meanwhile goes first.
        due, renewal = self._looks.due(now), self._renewals.due(now)
        if due is not None:
            self._look(due, now, now)
        if renewal is not None and renewal != due:
            self._renew(renewal, now)
        self._run_errand(now)
        self._release(now)
        with self._view.reading() as stamped:
            if self._errands or (stamped is not None and stamped.index.restless):
                return now
        dues = (self._looks.next_at(), self._renewals.next_at())
        return max(now, min((at for at in dues if at is not None), default=now + LOOK_S))

    def _follow(self, wanted: set[str], now: float) -> None:
        """Lead these queues from now on, and no others."""
        for queue in self._standpoints.keys() - wanted:
            self._looks.drop(queue)
            self._renewals.drop(queue)
            del self._standpoints[queue]
            self._give_up(self._leaderships.pop(queue))
        fresh = sorted(wanted - self._standpoints.keys())
        for number, queue in enumerate(fresh):
            self._standpoints[queue] = Standpoint(queue, early_s=LOOK_S * number / len(fresh))
            self._leaderships[queue] = Leadership(
                self._cluster,
                queue,
                home=self._home,
                holder=self._identity,
                shared_namespace=self._shared_namespace,
                clock=self._clock,
                spread=number / len(fresh),
            )
            self._looks.put(queue, now)
        if self._runs and self._renewers is None and len(self._leaderships) > _FEW:
            self._renewers = ThreadPoolExecutor(_RENEWERS, thread_name_prefix="renewer")
        self._begun = True

    def _touched(self, changes: Changes, now: float) -> set[str]:
        """The queues to be looked at now; others that are hungry are put on the agenda."""
        if self._woken.is_set():
            self._woken.clear()
            return set(self._standpoints)
        touched = changes.queues & self._standpoints.keys()
        if changes.freed:
            hungry = [
                each
                for queue, each in self._standpoints.items()
                if each.hungry and not each.called and queue not in touched
            ]
            for standpoint in sorted(hungry, key=lambda each: each.turned_at):
                standpoint.called = True
                self._looks.hasten(standpoint.queue, max(self._pace.next(now), standpoint.turned_at + HUNGRY_S))
        return touched

    def _look(self, queue: str, now: float, since: float) -> None:
        """Give a queue its turn, if it is led."""
        standpoint, leadership = self._standpoints[queue], self._leaderships[queue]
        standpoint.called = False
        look_at = now + LOOK_S - standpoint.early_s
        standpoint.early_s = 0.0
        with self._trying(queue, now):
            self._note(queue, now)
            if self._leads(leadership, now):
                again_at = self._turns.take(standpoint, now, since)
                look_at = look_at if again_at is None else min(look_at, again_at)
                self._errands[queue] = None
            else:
                self._renewals.drop(queue)
                look_at = leadership.due_at if leadership.due_at > now else now + RETRY_S
            self._looks.put(queue, look_at)

    def _run_errand(self, now: float) -> None:
        """See to the Jobs of one of the queues that had a turn."""
        if not self._errands:
            return
        queue = next(iter(self._errands))
        del self._errands[queue]
        if queue in self._standpoints and self._leaderships[queue].held:
            with self._trying(queue, now):
                again_at = self._turns.see_to(self._standpoints[queue], now)
                if again_at is not None:
                    self._looks.hasten(queue, again_at)

    @contextmanager
    def _trying(self, queue: str, now: float) -> Iterator[None]:
        """What fails in a queue is told and tried again; the others must not be left alone for it."""
        try:
            yield
        except ClusterError as error:
            _log.warning("queue %s: %s: looking again in %.0f s", queue, error, RETRY_S)
            self._teller.failed(queue, error)
            self._looks.put(queue, now + RETRY_S)
        except Exception as error:  # noqa: BLE001 - whatever it was
            _log.exception("queue %s: its turn failed", queue)
            self._teller.failed(queue, error)
            self._looks.put(queue, now + LOOK_S)

    def _leads(self, leadership: Leadership, now: float) -> bool:
        if self._renewers is not None and leadership.held:
            return True
        leads = leadership.renew(now)
        if leads:
            self._renewals.put(leadership.queue, leadership.due_at)
        return leads

    def _renew(self, queue: str, now: float) -> None:
        """Keep a Lease; of many, turns do not wait for that."""
        leadership = self._leaderships[queue]
        if not leadership.held:
            self._renewals.drop(queue)
            self._looks.put(queue, now)
        elif self._renewers is not None:
            self._renewals.put(queue, now + LEAD_S / 3)
            self._renewers.submit(_keep, leadership)
        elif _keep(leadership):
            self._renewals.put(queue, leadership.due_at)
        else:
            self._renewals.put(queue, now + RETRY_S)

    def _note(self, queue: str, now: float) -> None:
        if self._log is None:
            return
        with self._view.reading() as stamped:
            entry = stamped.index.timeline_entry(queue, now) if stamped is not None else None
        if entry is not None:
            self._log.queue(entry)

    def _release(self, now: float) -> None:
        """Take marks off nodes whose time is over."""
        if now < self._release_at or not self.led:
            return
        with self._view.reading() as stamped:
            marked = list(stamped.index.marked_nodes) if stamped is not None else []
        self._keeper.release(marked, now)
        self._release_at = now + LOOK_S / 3

    def _wrote(self, job: Manifest) -> None:
        with self._view.reading() as stamped:
            if stamped is not None:
                stamped.index.written(job)

    def _check_view(self) -> None:
        stale_since = self._view.stale_since
        if stale_since is not None and self._clock() - stale_since > STALE_S:
            raise UnavailableError(f"the cluster has not been seen for {STALE_S:.0f} s")

    def _job_is_over(self) -> bool:
        if self._only_for is None or self._view.stale_since is not None:
            return False
        with self._view.reading() as stamped:
            if stamped is None:
                return False
            job = stamped.index.job(self._only_for)
        return job is None or job.state.final

    def _give_back(self) -> None:
        self._executor.give_back()
        for leadership in self._leaderships.values():
            self._give_up(leadership)

    def _give_up(self, leadership: Leadership) -> None:
        try:
            leadership.release()
        except ClusterError as error:
            _log.warning("%s: the Lease was not given back and will run out: %s", leadership.queue, error)


def _keep(leadership: Leadership) -> bool:
    """Keep a Lease. Returns False where there was no answer: while it holds, that may be tried again."""
    try:
        leadership.keep()
    except ClusterError as error:
        _log.warning("queue %s: its Lease was not renewed: %s", leadership.queue, error)
        return False
    return True
