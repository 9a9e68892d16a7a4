"""What a cluster's objects come to for the autoscaler, kept up to date change by change.

It keeps little of each object, updates what a change touches and nothing else, and says which queues that concerns: the
cost of a change does not grow with the cluster, and a queue's snapshot costs as much as the queue is large.

Law: whatever the order of the kinds, and however often a change is told, also late after a list, the index is the one
that would be made of the objects as they are.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.elastic_jobs import as_of, timeline_of, worker_pods
from kfp_volcano.elastic.autoscaler.job_facts import JobFacts
from kfp_volcano.elastic.autoscaler.needs import Catalogue
from kfp_volcano.elastic.autoscaler.node_table import NodeTable
from kfp_volcano.elastic.autoscaler.pod_facts import GroupFacts, PodFacts, version_of
from kfp_volcano.elastic.autoscaler.queue_tree import QueueTree
from kfp_volcano.elastic.autoscaler.standing import Standing
from kfp_volcano.elastic.policies.snapshot import NOWHERE, UNUSABLE, QueueSnapshot
from kfp_volcano.volcano.model.objects import key_of
from kfp_volcano.volcano.model.priorities import priority_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kfp_volcano.elastic.autoscaler.claims import Claims
    from kfp_volcano.elastic.policies.snapshot import ElasticJob
    from kfp_volcano.volcano.cluster.base import Event, Manifest
    from kfp_volcano.volcano.model.objects import Key

__all__ = ["WATCHED", "Changes", "ClusterIndex"]

WATCHED = ("Queue", "PodGroup", "Job", "Pod", "Node", "PriorityClass")
"""The kinds it is made of."""


@dataclass(slots=True)
class Changes:
    """What has changed since it was asked last."""

    queues: set[str] = field(default_factory=set)
    """Queues in which something has: Jobs, gangs, what their pods hold, what they are asked for."""
    freed: bool = False
    """Whether any queue may have more room than before: GPUs came free, nodes or limits have changed."""
    tree: bool = False
    """Whether queues came, changed or went."""


class ClusterIndex:
    """Compact records of the objects of `WATCHED`. A `Sink`; for one thread at a time."""

    def __init__(self) -> None:
        self._catalogue = Catalogue()
        self._tree = QueueTree()
        self._table = NodeTable()
        self._standing = Standing(self._table, self._tree, self._catalogue)
        self._owners: dict[str, JobFacts | GroupFacts] = {}
        """Jobs by key, PodGroups by key and a suffix: what pods belong to."""
        self._jobs_of: dict[str, dict[str, JobFacts]] = defaultdict(dict)
        """By queue."""
        self._pods: dict[str, PodFacts] = {}
        self._members: dict[str, dict[str, PodFacts]] = {}
        """Pods by owner: their Job, or else their PodGroup."""
        self._priority_classes: dict[Key, Manifest] = {}
        self._floors: dict[str, int] = dict.fromkeys(WATCHED, 0)
        """Up to which resource version all is known of a kind: what comes later with a smaller one is old."""
        self._dirty: set[str] = set()
        """Owners that have to be reviewed."""
        self._claims: Claims | None = None
        """As they were when changes were asked for last."""
        self._changes = Changes()

    # What it is told.

    def page(self, kind: str, objects: Sequence[Manifest]) -> None:
        """Some of all objects of a kind."""
        for each in objects:
            self._put(kind, each)

    def listed(self, kind: str, keys: AbstractSet[Key], version: str = "") -> None:
        """These are all there are of a kind, as of this resource version."""
        self._floors[kind] = max(self._floors[kind], int(version) if version.isdigit() else 0)
        for key in [key for key in self._keys(kind) if key not in keys]:
            self._remove(kind, key)

    def apply(self, kind: str, event: Event) -> None:
        """A change."""
        version = version_of(event.object)
        if event.type == "DELETED":
            self._remove(kind, key_of(event.object), str(event.object["metadata"].get("uid", "")))
        elif event.type != "BOOKMARK" and (not version or version > self._floors[kind]):
            self._put(kind, event.object)
        self._floors[kind] = max(self._floors[kind], version)

    def replace(self, kind: str, objects: Sequence[Manifest], version: str = "") -> None:
        """All objects of a kind as they are."""
        self.page(kind, objects)
        self.listed(kind, set(map(key_of, objects)), version)

    def written(self, job: Manifest) -> None:
        """A Job as the answer to an own change has it: it counts at once, before the watch tells of it."""
        if version_of(job) > self._floors["Job"]:
            self._put("Job", job)

    # What it is asked.

    @property
    def queues(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each queue, by name."""
        return self._tree.labels

    @property
    def priorities(self) -> dict[str, int]:
        """The PriorityClasses, name to value."""
        return {name: int(each.get("value") or 0) for (_, name), each in self._priority_classes.items()}

    def waits(self, job: str) -> bool:
        """Whether a Job's gang waits."""
        self._settle()
        return self._standing.gang(job) is not None

    @property
    def restless(self) -> bool:
        """Whether there are changes to be asked for."""
        return bool(self._dirty or self._changes.queues or self._changes.freed or self._changes.tree)

    def changes(self) -> Changes:
        """What has changed since this was asked last."""
        self._settle()
        before, now = self._claims, self._standing.claims()
        if now is not before:
            asked = before.asked if before else {}
            self._changes.queues.update(
                queue for queue in {*now.asked, *asked} if now.asked.get(queue) != asked.get(queue)
            )
            self._claims = now
        changes, self._changes = self._changes, Changes()
        return changes

    def snapshot(self, queue: str, now: float, namespace: str = "", *, pods: bool = False) -> QueueSnapshot:
        """The snapshot of a queue.

        Args:
            queue: The queue's name.
            now: Unix seconds.
            namespace: Where Jobs may be resized; those of other namespaces only count as load. Empty: everywhere.
            pods: Whether to tell of each worker's pod.
        """
        self._settle()
        found = dict(self._elastic(queue, now, namespace))
        owed = self._standing.claims()
        pending, claims = self._standing.pending(queue), owed.asked.get(queue, ())
        names = {job.shape for job in found.values()} | {gang.shape for gang in (*pending, *claims)}
        shapes = {name: needs for name in names if (needs := self._catalogue.named(name)) is not None}
        hosts = {node for job in found.values() for node in job.nodes} - {NOWHERE, UNUSABLE}
        nodes, crowd = self._table.crowd(shapes.values()).apart(hosts)
        jobs = tuple(found[key] for key in sorted(found))
        if pods:
            jobs = tuple(replace(job, pods=worker_pods(self.pods_of(job.key))) for job in jobs)
        return QueueSnapshot(
            queue=queue,
            at=now,
            limit_gpus=self._tree.limit(queue, self._table.total, owed.coming),
            allocated_gpus=self._tree.held(queue),
            deserved_gpus=self._tree.deserved(queue),
            guarantee_gpus=self._tree.guarantee(queue),
            nodes=nodes,
            crowd=crowd,
            reserved=tuple(sorted(self._standing.reserved(queue, found, now))),
            releasing_gpus=self._tree.releasing(queue),
            shapes={name: needs.shape for name, needs in sorted(shapes.items())},
            jobs=jobs,
            pending=tuple(pending),
            claims=claims,
        )

    def jobs_of(self, queue: str) -> Collection[JobFacts]:
        """All Jobs of a queue."""
        return self._jobs_of.get(queue, {}).values()

    def job(self, key: str) -> JobFacts | None:
        """A Job, by namespace/name."""
        found = self._owners.get(key)
        return found if isinstance(found, JobFacts) else None

    def version(self, job: str) -> int:
        """The resource version of a Job as it is known; 0 for one that is not."""
        found = self._owners.get(job)
        return found.version if found else 0

    def pods_of(self, job: str) -> Collection[PodFacts]:
        """A Job's pods."""
        return self._members.get(job, {}).values()

    @property
    def marked_nodes(self) -> Collection[Manifest]:
        """The nodes that are marked as unfit, whoever marked them."""
        return self._table.marked.values()

    def timeline_entry(self, queue: str, now: float) -> dict[str, Any]:
        """The queue's line for `queue.jsonl`; `gpus` are held, `pending_gpus` asked for by pods that wait."""
        self._settle()
        jobs = sorted(self.jobs_of(queue), key=lambda job: job.key)
        entries = (timeline_of(job, self.pods_of(job.key), self._standing.gang(job.key)) for job in jobs)
        return {
            "kind": "queue",
            "time": now,
            "queue": queue,
            "limit": self._tree.limit(queue, self._table.total),
            "allocated": self._tree.held(queue),
            "jobs": [entry for entry in entries if entry],
        }

    def _elastic(self, queue: str, now: float, namespace: str) -> Iterator[tuple[str, ElasticJob]]:
        for key, job in self._jobs_of.get(queue, {}).items():
            seen = self._standing.elastic.get(key)
            if seen is not None and (not namespace or key.startswith(f"{namespace}/")):
                yield key, as_of(seen, job, now)

    def _settle(self) -> None:
        """Review what has to be."""
        for owner in self._dirty:
            self._standing.review(owner, self._owners.get(owner), self.pods_of(owner), self._priority)
        self._dirty.clear()

    def _priority(self, name: str) -> int:
        return priority_value({"PriorityClass": self._priority_classes}, name)

    # One object.

    def _put(self, kind: str, manifest: Manifest) -> None:
        match kind:
            case "Pod":
                self._put_pod(PodFacts.of(manifest, self._catalogue))
            case "Job":
                self._put_job(manifest)
            case "PodGroup":
                self._put_group(GroupFacts.of(manifest))
            case "Node" | "Queue":
                self._put_shared(kind, str(manifest["metadata"]["name"]), manifest)
            case "PriorityClass":
                self._put_priority_class(key_of(manifest), manifest)

    def _remove(self, kind: str, key: Key, uid: str = "") -> None:
        """Forget an object, with `uid` only that very one."""
        name = f"{key[0]}/{key[1]}"
        match kind:
            case "Pod":
                pod = self._pods.get(name)
                if pod is not None and uid in {"", pod.uid}:
                    self._drop_pod(pod)
                    self._touch_pod(pod)
            case "Job" | "PodGroup":
                owner = name if kind == "Job" else _group(name)
                facts = self._owners.get(owner)
                if facts is not None and uid in {"", facts.uid}:
                    self._drop_owner(owner, facts)
            case "Node" | "Queue":
                self._put_shared(kind, key[1], None)
            case "PriorityClass":
                self._put_priority_class(key, None)

    def _keys(self, kind: str) -> Iterator[Key]:
        match kind:
            case "Pod":
                yield from map(_key, self._pods)
            case "Job":
                yield from (_key(owner) for owner, facts in self._owners.items() if isinstance(facts, JobFacts))
            case "PodGroup":
                yield from (_key(facts.key) for facts in self._owners.values() if isinstance(facts, GroupFacts))
            case "Node":
                yield from (("", name) for name in self._table.names)
            case "Queue":
                yield from (("", name) for name in self._tree.labels)
            case "PriorityClass":
                yield from self._priority_classes

    def _put_pod(self, pod: PodFacts) -> None:
        before = self._pods.get(pod.key)
        if before is not None and before.uid == pod.uid and before.version > pod.version:
            return
        same = before == pod
        if before is not None:
            self._drop_pod(before, freed=not pod.holds or pod.node != before.node)
        self._pods[pod.key] = pod
        owner = self._owner_of(pod)
        if owner:
            self._members.setdefault(owner, {})[pod.key] = pod
        self._charge(pod)
        if not same:
            self._touch_pod(pod)

    def _drop_pod(self, pod: PodFacts, *, freed: bool = True) -> None:
        del self._pods[pod.key]
        owner = self._owner_of(pod)
        members = self._members.get(owner, {})
        members.pop(pod.key, None)
        if not members:
            self._members.pop(owner, None)
        if pod.holds:
            self._changes.freed |= freed
            self._discharge(pod)

    def _touch_pod(self, pod: PodFacts) -> None:
        owner = self._owner_of(pod)
        if owner:
            self._dirty.add(owner)
        facts = self._owners.get(owner)
        self._changes.queues.update({facts.queue if facts else "", self._queue_of(pod)} - {""})

    def _charge(self, pod: PodFacts) -> None:
        """Account for what a pod holds."""
        if not pod.holds:
            return
        pod.charged, pod.let_go = self._queue_of(pod), self._is_let_go(pod)
        self._table.hold(pod.node, pod.request, pod.job, leaving=pod.let_go, times=1)
        if pod.charged:
            self._tree.hold(pod.charged, pod.request.gpus, leaving=pod.let_go)
        self._standing.changed(pod.charged)

    def _discharge(self, pod: PodFacts) -> None:
        self._table.hold(pod.node, pod.request, pod.job, leaving=pod.let_go, times=-1)
        if pod.charged:
            self._tree.hold(pod.charged, -pod.request.gpus, leaving=pod.let_go)
        self._standing.changed(pod.charged)

    def _put_job(self, manifest: Manifest) -> None:
        key = "/".join(key_of(manifest))
        before = self.job(key)
        if (
            before is not None
            and before.uid == manifest["metadata"].get("uid")
            and before.version > version_of(manifest)
        ):
            return
        job = JobFacts.of(manifest, self._catalogue, before)
        if before is not None and before.queue != job.queue:
            del self._jobs_of[before.queue][key]
            self._changes.queues.add(before.queue)
        self._owners[key] = self._jobs_of[job.queue][key] = job
        if before is None or before.tasks != job.tasks:
            self._recharge(key)
        if before != job or before.pace != job.pace:
            self._dirty.add(key)
        if before != job or (before.pace != job.pace and job.unanswered):
            self._changes.queues.add(job.queue)

    def _put_group(self, group: GroupFacts) -> None:
        owner = _group(group.key)
        before = self._owners.get(owner)
        if before is not None and before.uid == group.uid and before.version > group.version:
            return
        self._owners[owner] = group
        if before != group:
            self._changes.queues.add(group.queue)
            self._recharge_group(owner, group)
        if before is not None and before.queue != group.queue:
            self._changes.queues.add(before.queue)

    def _drop_owner(self, owner: str, facts: JobFacts | GroupFacts) -> None:
        del self._owners[owner]
        self._changes.queues.add(facts.queue)
        self._dirty.add(owner)
        if isinstance(facts, JobFacts):
            del self._jobs_of[facts.queue][owner]
            self._recharge(owner)
        else:
            self._recharge_group(owner, facts)

    def _recharge_group(self, owner: str, group: GroupFacts) -> None:
        """A PodGroup may say of its pods whose they are."""
        if not group.job:
            self._dirty.add(owner)
        self._recharge(group.job or owner)

    def _recharge(self, owner: str) -> None:
        """Pods may be another queue's than they were, or be let go by their Job."""
        for pod in self.pods_of(owner):
            if pod.holds and (pod.charged, pod.let_go) != (self._queue_of(pod), self._is_let_go(pod)):
                self._changes.queues.update({pod.charged, self._queue_of(pod)} - {""})
                self._discharge(pod)
                self._charge(pod)

    def _put_shared(self, kind: str, name: str, manifest: Manifest | None) -> None:
        """A node or a queue."""
        if kind == "Node":
            changed = self._table.put(name, manifest)
            if changed:
                self._dirty.update(self._table.jobs_on(name))
        else:
            changed = self._tree.put(name, manifest)
            self._changes.tree |= changed
        if changed:
            self._changes.freed = True
            self._standing.changed(None)

    def _put_priority_class(self, key: Key, manifest: Manifest | None) -> None:
        known = self._priority_classes.get(key)
        if (known or {}).get("value") == (manifest or {}).get("value") and (known is None) == (manifest is None):
            return
        if manifest is None:
            del self._priority_classes[key]
        else:
            self._priority_classes[key] = manifest
        self._dirty.update(self._owners)
        self._changes.queues.update(self._jobs_of)

    def _queue_of(self, pod: PodFacts) -> str:
        """Its PodGroup's queue, or what its label says."""
        group = self._owners.get(_group(pod.group)) if pod.group else None
        return group.queue if group is not None else pod.queue

    def _is_let_go(self, pod: PodFacts) -> bool:
        """Whether it is leaving, or about to: between a smaller Job and its controller's deletion lies a moment."""
        job = self._owners.get(pod.job)
        return pod.leaving or (isinstance(job, JobFacts) and job.lets_go(pod.task, pod.index))

    def _owner_of(self, pod: PodFacts) -> str:
        return pod.job or (_group(pod.group) if pod.group else "")


def _group(key: str) -> str:
    """A PodGroup among the owners of pods; no Job has such a key."""
    return sys.intern(f"{key}/group")


def _key(text: str) -> Key:
    namespace, _, name = text.partition("/")
    return namespace, name
