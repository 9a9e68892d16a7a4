# SPDX-License-Identifier: Apache-2.0
"""How gangs stand: elastic Jobs, gangs that wait, what was promised to whom, and who is asked to give.

Reviewed owner by owner (Jobs, and PodGroups of no Job), when something of theirs has changed; what concerns several
queues is put together from that when it is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.observing.claims import Claims, Lender, claims_of, entitled
from kfp_volcano.elastic.autoscaler.observing.elastic_jobs import as_of, elastic_job, gang_of, loose_gang, promised
from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts
from kfp_volcano.elastic.policies.room import room_of
from kfp_volcano.elastic.policies.snapshot import NOWHERE, UNUSABLE, QueueSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from kfp_volcano.elastic.autoscaler.observing.needs import Catalogue, Needs
    from kfp_volcano.elastic.autoscaler.observing.node_table import NodeTable
    from kfp_volcano.elastic.autoscaler.observing.pod_facts import GroupFacts, PodFacts
    from kfp_volcano.elastic.autoscaler.observing.queue_tree import QueueTree
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, PendingGang

__all__ = ["Standing"]


class Standing:
    """What owners of pods come to, on these nodes and in these queues."""

    def __init__(self, table: NodeTable, tree: QueueTree, catalogue: Catalogue) -> None:
        self._table = table
        self._tree = tree
        self._catalogue = catalogue
        self.elastic: dict[str, ElasticJob] = {}
        """By Job, a request that nobody has taken up counting as open."""
        self._facts: dict[str, JobFacts] = {}
        self._homes: dict[str, str] = {}
        """In which queue an owner was reviewed last."""
        self._gangs: dict[str, dict[str, PendingGang]] = {}
        """By queue and owner."""
        self._elastic_of: dict[str, set[str]] = defaultdict(set)
        self._promising: set[str] = set()
        """Jobs that have been promised workers which hold nothing yet."""
        self._entitled: dict[str, tuple[PendingGang, ...]] = {}
        self._surplus: dict[str, int] = {}
        self._claims: Claims | None = Claims()

    def review(
        self,
        owner: str,
        facts: JobFacts | GroupFacts | None,
        pods: Collection[PodFacts],
        priority: Callable[[str], int],
    ) -> None:
        """Look at an owner again; None where it is gone."""
        if facts is None:
            self.forget(owner)
            return
        value = priority(facts.priority_class)
        if isinstance(facts, JobFacts):
            gang, seen = gang_of(facts, pods, value), elastic_job(facts, pods, self._table, value)
        else:
            gang, seen = loose_gang(facts, value), None
        self.put(owner, facts.queue, gang, seen)
        if seen is not None and isinstance(facts, JobFacts):
            self._facts[owner] = facts

    def put(self, owner: str, queue: str, gang: PendingGang | None, seen: ElasticJob | None) -> None:
        """How an owner stands: its gang waits, or it is elastic, or neither."""
        self.forget(owner)
        self._homes[owner] = queue
        if gang is not None:
            self._gangs.setdefault(queue, {})[owner] = gang
        if seen is not None:
            self.elastic[owner] = seen
            self._elastic_of[queue].add(owner)
            if promised(seen):
                self._promising.add(owner)
        self.changed(queue)

    def changed(self, queue: str | None) -> None:
        """Something of a queue has changed that its claims depend on; None: of all, its limits or shares."""
        self._claims = None
        if queue is None:
            self._entitled.clear()
        else:
            self._entitled.pop(queue, None)
            self._surplus.pop(queue, None)

    def pending(self, queue: str) -> list[PendingGang]:
        """The gangs of a queue that wait and may be placed, the longest waiting first."""
        if not self._tree.is_open(queue):
            return []
        return sorted(self._gangs.get(queue, {}).values(), key=lambda gang: (gang.since, gang.key))

    def gang(self, owner: str) -> PendingGang | None:
        """The gang of an owner, if it waits."""
        return self._gangs.get(self._homes.get(owner, ""), {}).get(owner)

    def claims(self) -> Claims:
        """Who is asked for what, and what is served by what is free."""
        if self._claims is None:
            self._claims = self._share_out()
        return self._claims

    def reserved(self, queue: str, own: Collection[str], now: float) -> Iterator[tuple[str, int]]:
        """(shape, GPUs) of pods that others were promised, or will be placed for them: not for a queue's `own` Jobs."""
        for owner in self._promising:
            if owner not in own:
                seen, facts = self.elastic[owner], self._facts.get(owner)
                seen = seen if facts is None else as_of(seen, facts, now)
                yield from [(seen.shape, seen.gpus_per_worker)] * promised(seen)
        for gang in self.claims().served:
            if gang.queue != queue:
                yield from ((gang.shape, gpus) for gpus in gang.pods)

    def snapshot(self, queue: str, now: float, found: Mapping[str, ElasticJob]) -> QueueSnapshot:
        """The snapshot of a queue with these elastic Jobs, by key, that may be resized."""
        owed = self.claims()
        pending, claims = self.pending(queue), owed.asked.get(queue, ())
        names = {job.shape for job in found.values()} | {gang.shape for gang in (*pending, *claims)}
        shapes = {name: needs for name in names if (needs := self._catalogue.named(name)) is not None}
        hosts = {node for job in found.values() for node in job.nodes} - {NOWHERE, UNUSABLE}
        nodes, crowd = self._table.crowd(shapes.values()).apart(hosts)
        return QueueSnapshot(
            queue=queue,
            at=now,
            limit_gpus=self._tree.limit(queue, self._table.total, owed.coming),
            allocated_gpus=self._tree.held(queue),
            deserved_gpus=self._tree.deserved(queue),
            guarantee_gpus=self._tree.guarantee(queue),
            nodes=nodes,
            crowd=crowd,
            reserved=tuple(sorted(self.reserved(queue, found, now))),
            releasing_gpus=self._tree.releasing(queue),
            shapes={name: needs.shape for name, needs in sorted(shapes.items())},
            jobs=tuple(found[key] for key in sorted(found)),
            pending=tuple(pending),
            claims=claims,
        )

    def forget(self, owner: str) -> None:
        """An owner is gone."""
        home = self._homes.pop(owner, None)
        if home is None:
            return
        gangs = self._gangs.get(home, {})
        gangs.pop(owner, None)
        if not gangs:
            self._gangs.pop(home, None)
        self.elastic.pop(owner, None)
        self._facts.pop(owner, None)
        self._elastic_of[home].discard(owner)
        self._promising.discard(owner)
        self.changed(home)

    def _share_out(self) -> Claims:
        wanted = [gang for queue in self._gangs for gang in self._entitled_of(queue)]
        if not wanted:
            return Claims()
        shapes = [needs for gang in wanted if (needs := self._catalogue.named(gang.shape)) is not None]
        lenders = [
            Lender(queue, borrowed, deserved, self._surplus_of(queue), self._tree.above(queue))
            for queue, borrowed, deserved in self._tree.lenders()
        ]
        queues = {gang.queue for gang in wanted}
        surplus = {queue: self._surplus_of(queue) for queue in queues}
        bounds = {queue: self._tree.bounds(queue, self._table.total) for queue in queues}
        return claims_of(wanted, room_of(self._everything(shapes)), lenders, surplus, bounds)

    def _everything(self, shapes: Iterable[Needs]) -> QueueSnapshot:
        """The whole cluster as one queue."""
        return QueueSnapshot(
            queue="",
            at=0.0,
            limit_gpus=self._table.total,
            allocated_gpus=0,
            crowd=self._table.crowd(shapes).counts,
            shapes={needs.shape.name: needs.shape for needs in shapes},
        )

    def _entitled_of(self, queue: str) -> tuple[PendingGang, ...]:
        found = self._entitled.get(queue)
        if found is None:
            deserved = self._tree.deserved(queue)
            room = 0 if deserved is None else deserved - self._tree.held(queue)
            gangs = entitled(self.pending(queue), room) if room > 0 else []
            found = self._entitled[queue] = tuple(replace(gang, queue=queue) for gang in gangs)
        return found

    def _surplus_of(self, queue: str) -> int:
        """GPUs of elastic Jobs' workers above their minimum that would come free for others."""
        found = self._surplus.get(queue)
        if found is None:
            found = self._surplus[queue] = sum(
                sum(node not in {NOWHERE, UNUSABLE} for node in job.nodes[job.min_workers :]) * job.gpus_per_worker
                for job in (self.elastic[owner] for owner in self._elastic_of[queue])
            )
        return found
