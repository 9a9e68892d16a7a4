# SPDX-License-Identifier: Apache-2.0
"""What the autoscaler sees of the virtual cluster: the production code's own tables, told of each change.

In production they are filled from objects, here from gangs; what is made of them, snapshots and claims between queues,
is the same code.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.observing.elastic_jobs import promised
from kfp_volcano.elastic.autoscaler.observing.needs import Catalogue, Request
from kfp_volcano.elastic.autoscaler.observing.node_table import NodeTable
from kfp_volcano.elastic.autoscaler.observing.queue_tree import QueueTree
from kfp_volcano.elastic.autoscaler.observing.standing import Standing
from kfp_volcano.elastic.policies.outlook import Outlook
from kfp_volcano.elastic.simulator.manifests import node_manifest, pod_spec, queue_manifest
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.queues import root_queue
from kfp_volcano.volcano.model.resources import POD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.elastic.autoscaler.observing.claims import Claims
    from kfp_volcano.elastic.policies.memory import Mode
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, PendingGang, QueueSnapshot
    from kfp_volcano.elastic.simulator.scenario import Job, Node, Queue

__all__ = ["Held", "Observer"]

Held = Counter[tuple[str, bool]]
"""GPUs of a job by node, and whether they are being let go."""

_MILLI = 1000
_FAILURES_S = 3600.0
"""For so long, longer than any breaker's window, a resize that failed is looked at."""


class Sums:
    """The jobs of a queue, as far as most of its turns need them."""

    def __init__(self) -> None:
        self.growing: set[str] = set()
        """Those that may grow."""
        self.surplus: set[str] = set()
        """Those that may shrink."""
        self.waiting: set[str] = set()
        """Those that were promised workers which have no node."""
        self.gangs: dict[str, int] = {}
        """GPUs that gangs wait for."""
        self.waiting_gpus = 0
        self.failed_at = -math.inf
        """When a resize last failed."""

    def see(self, name: str, gang: PendingGang | None, seen: ElasticJob | None) -> None:
        """A job as it is now."""
        self.waiting_gpus -= self.gangs.pop(name, 0)
        if gang is not None:
            self.gangs[name] = gang.gpus
            self.waiting_gpus += gang.gpus
        free = seen is not None and not seen.resize_open
        _mark(self.growing, name, free and seen is not None and seen.workers < seen.max_workers)
        _mark(self.surplus, name, free and seen is not None and seen.workers > min(seen.sizes))
        _mark(self.waiting, name, seen is not None and (seen.waiting_since is not None or promised(seen) > 0))
        if seen is not None and seen.last_failed and seen.last_resize_at is not None:
            self.failed_at = max(self.failed_at, seen.last_resize_at)


def _mark(names: set[str], name: str, there: bool) -> None:  # noqa: FBT001 - whether it is in the set
    if there:
        names.add(name)
    else:
        names.discard(name)


class Observer:
    """The autoscaler's tables.

    Args:
        nodes: Of the scenario.
        queues: Of the scenario.
    """

    def __init__(self, nodes: Iterable[Node], queues: Sequence[Queue]) -> None:
        self._catalogue, self._tree, self._table = Catalogue(), QueueTree(), NodeTable()
        self._standing = Standing(self._table, self._tree, self._catalogue)
        self._nodes = {node.name: node for node in nodes}
        self._held: dict[str, Held] = {}
        self._requests: dict[int, Request] = {}
        self._shapes: dict[tuple[tuple[str, ...], int], str] = {}
        self._claims: Claims | None = None
        self._sums = {queue.name: Sums() for queue in queues}
        self._used = 0
        self._touched: set[str] = set()
        self._freed = False
        for name in self._nodes:
            self._table.put(name, node_manifest(self._nodes[name]))
        for manifest in (root_queue(), *map(queue_manifest, queues)):
            self._tree.put(manifest["metadata"]["name"], manifest)

    def shape(self, job: Job) -> str:
        """The name of what a job's workers need beside GPUs."""
        key = job.gpu_classes, job.gpus_per_worker
        if key not in self._shapes:
            self._shapes[key] = self._catalogue.needs(pod_spec(job)).shape.name
        return self._shapes[key]

    def see(self, job: Job, held: Held, gang: PendingGang | None, seen: ElasticJob | None) -> None:
        """A job as it is now."""
        before = self._held.get(job.name, Held())
        for key in before.keys() | held.keys():
            more = held[key] - before[key]
            if more:
                self._hold(job, *key, more)
        self._held[job.name] = held
        self._standing.put(job.name, job.queue, gang, seen)
        self._sums[job.queue].see(job.name, gang, seen)
        self._touched.add(job.queue)

    def renew(self, job: Job, seen: ElasticJob) -> None:
        """What training reports of a job; nothing else has changed."""
        self._standing.elastic[job.name] = seen

    def forget(self, job: Job) -> None:
        """A job is gone."""
        self.see(job, Held(), None, None)
        del self._held[job.name]
        self._standing.forget(job.name)

    def there(self, node: str, *, there: bool) -> None:
        """A node goes, or comes back."""
        self._table.put(node, node_manifest(self._nodes[node]) if there else None)
        self._standing.changed(None)
        self._freed = True

    def changes(self) -> tuple[set[str], bool]:
        """The queues in which something has changed since this was asked, and whether GPUs came free."""
        claims = self._standing.claims()
        if claims is not self._claims:
            self._touched.update(claims.asked_anew(self._claims))
            self._claims = claims
        touched, freed = self._touched, self._freed
        self._touched, self._freed = set(), False
        return touched, freed

    def snapshot(self, queue: str, at: float, jobs: Mapping[str, ElasticJob]) -> QueueSnapshot:
        """A queue with these elastic jobs."""
        return self._standing.snapshot(queue, at, jobs)

    def outlook(self, queue: str, at: float, mode: Mode | None) -> Outlook | None:
        """The same in sums; None where it takes a look at single jobs."""
        own, claims = self._sums[queue], self._standing.claims()
        if claims.asked or claims.served or any(each.waiting for each in self._sums.values()):
            return None
        if (own.gangs and own.surplus) or own.failed_at > at - _FAILURES_S:
            return None
        limit = self._tree.limit(queue, self._table.total)
        return Outlook(
            at=at,
            limit_gpus=limit,
            free_gpus=max(0, min(limit - self._tree.held(queue), self._table.total - self._used)),
            waiting_gpus=own.waiting_gpus,
            growing=bool(own.growing),
            mode=mode,
        )

    def seen(self, job: str) -> ElasticJob | None:
        """An elastic job as it was seen last."""
        return self._standing.elastic.get(job)

    def _hold(self, job: Job, node: str, leaving: bool, gpus: int) -> None:  # noqa: FBT001 - the parts of a key
        workers = gpus // job.gpus_per_worker
        times, count = (1, workers) if workers > 0 else (-1, -workers)
        key = count * 1_000_000 + gpus
        request = self._requests.get(key)
        if request is None:
            amounts = {GPU: abs(gpus) * _MILLI, POD: count * _MILLI}
            request = self._requests[key] = Request(abs(gpus), amounts)
        self._table.hold(node, request, job.name, leaving=leaving, times=times)
        self._used += gpus
        self._tree.hold(job.queue, gpus, leaving=leaving)
        self._standing.changed(job.queue)
        self._freed = self._freed or gpus < 0
