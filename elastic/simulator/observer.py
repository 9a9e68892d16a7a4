"""What the autoscaler sees of the virtual cluster: the production code's own tables, told of each change.

In production they are filled from objects, here from gangs; what is made of them, snapshots and claims between queues,
is the same code.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.observing.needs import Catalogue, Request
from kfp_volcano.elastic.autoscaler.observing.node_table import NodeTable
from kfp_volcano.elastic.autoscaler.observing.queue_tree import QueueTree
from kfp_volcano.elastic.autoscaler.observing.standing import Standing
from kfp_volcano.elastic.simulator.manifests import node_manifest, pod_spec, queue_manifest
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.queues import root_queue
from kfp_volcano.volcano.model.resources import POD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfp_volcano.elastic.autoscaler.observing.claims import Claims
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, PendingGang, QueueSnapshot
    from kfp_volcano.elastic.simulator.scenario import Job, Node, Queue

__all__ = ["Held", "Observer"]

Held = Counter[tuple[str, bool]]
"""GPUs of a job by node, and whether they are being let go."""

_MILLI = 1000


class Observer:
    """The autoscaler's tables.

    Args:
        nodes: Of the scenario.
        queues: Of the scenario.
    """

    def __init__(self, nodes: Iterable[Node], queues: Iterable[Queue]) -> None:
        self._catalogue, self._tree, self._table = Catalogue(), QueueTree(), NodeTable()
        self._standing = Standing(self._table, self._tree, self._catalogue)
        self._nodes = {node.name: node for node in nodes}
        self._held: dict[str, Held] = {}
        self._requests: dict[int, Request] = {}
        self._shapes: dict[tuple[tuple[str, ...], int], str] = {}
        self._claims: Claims | None = None
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
        self._tree.hold(job.queue, gpus, leaving=leaving)
        self._standing.changed(job.queue)
        self._freed = self._freed or gpus < 0
