# SPDX-License-Identifier: Apache-2.0
"""The records behind the index, each object put in and taken out by itself, and what that changes.

Who counts where: a pod's GPUs in its PodGroup's queue, or what its label says; its owner is its Job, or else its
PodGroup. Kinds may come in any order, so each is looked up again when the other comes.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts
from kfp_volcano.elastic.autoscaler.observing.needs import Catalogue
from kfp_volcano.elastic.autoscaler.observing.node_table import NodeTable
from kfp_volcano.elastic.autoscaler.observing.pod_facts import GroupFacts, PodFacts, version_of
from kfp_volcano.elastic.autoscaler.observing.queue_tree import QueueTree
from kfp_volcano.elastic.autoscaler.observing.standing import Standing
from kfp_volcano.volcano.model.objects import key_of
from kfp_volcano.volcano.model.priorities import priority_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kfp_volcano.volcano.cluster.base import Manifest
    from kfp_volcano.volcano.model.objects import Key

__all__ = ["Books", "Changes"]


@dataclass(slots=True)
class Changes:
    """What has changed since it was asked last."""

    queues: set[str] = field(default_factory=set)
    """Queues in which something has: Jobs, gangs, what their pods hold, what they are asked for."""
    freed: bool = False
    """Whether any queue may have more room than before: GPUs came free, nodes or limits have changed."""
    tree: bool = False
    """Whether queues came, changed or went."""


class Books:
    """Records of all objects."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.tree = QueueTree()
        self.table = NodeTable()
        self.standing = Standing(self.table, self.tree, self.catalogue)
        self.owners: dict[str, JobFacts | GroupFacts] = {}
        """Jobs by key, PodGroups by key and a suffix: what pods belong to."""
        self.jobs_of: dict[str, dict[str, JobFacts]] = defaultdict(dict)
        """By queue."""
        self.priority_classes: dict[Key, Manifest] = {}
        self.changes = Changes()
        """Since whoever takes them has put new ones here."""
        self._pods: dict[str, PodFacts] = {}
        self._members: dict[str, dict[str, PodFacts]] = {}
        """Pods by owner."""
        self._dirty: set[str] = set()
        """Owners that have to be reviewed."""

    @property
    def size(self) -> int:
        """How many owners and pods there are."""
        return len(self.owners) + len(self._pods)

    @property
    def restless(self) -> bool:
        """Whether something has changed that nobody has taken yet."""
        return bool(self._dirty or self.changes.queues or self.changes.freed or self.changes.tree)

    def pods_of(self, owner: str) -> Collection[PodFacts]:
        """An owner's pods."""
        return self._members.get(owner, {}).values()

    def settle(self) -> None:
        """Review what has to be."""
        for owner in self._dirty:
            self.standing.review(owner, self.owners.get(owner), self.pods_of(owner), self._priority)
        self._dirty.clear()

    def _priority(self, name: str) -> int:
        return priority_value({"PriorityClass": self.priority_classes}, name)

    def put(self, kind: str, manifest: Manifest) -> None:
        """An object as it is now, unless a later form of it is known."""
        match kind:
            case "Pod":
                self._put_pod(PodFacts.of(manifest, self.catalogue))
            case "Job":
                self._put_job(manifest)
            case "PodGroup":
                self._put_group(GroupFacts.of(manifest))
            case "Node" | "Queue":
                self._put_shared(kind, str(manifest["metadata"]["name"]), manifest)
            case "PriorityClass":
                self._put_priority_class(key_of(manifest), manifest)

    def remove(self, kind: str, key: Key, uid: str = "") -> None:
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
                facts = self.owners.get(owner)
                if facts is not None and uid in {"", facts.uid}:
                    self._drop_owner(owner, facts)
            case "Node" | "Queue":
                self._put_shared(kind, key[1], None)
            case "PriorityClass":
                self._put_priority_class(key, None)

    def keys(self, kind: str) -> Iterator[Key]:
        """Of all that is known of a kind."""
        match kind:
            case "Pod":
                yield from map(_key, self._pods)
            case "Job":
                yield from (_key(owner) for owner, facts in self.owners.items() if isinstance(facts, JobFacts))
            case "PodGroup":
                yield from (_key(facts.key) for facts in self.owners.values() if isinstance(facts, GroupFacts))
            case "Node":
                yield from (("", name) for name in self.table.names)
            case "Queue":
                yield from (("", name) for name in self.tree.labels)
            case "PriorityClass":
                yield from self.priority_classes

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
            self.changes.freed |= freed
            self._discharge(pod)

    def _touch_pod(self, pod: PodFacts) -> None:
        owner = self._owner_of(pod)
        if owner:
            self._dirty.add(owner)
        facts = self.owners.get(owner)
        self.changes.queues.update({facts.queue if facts else "", self._queue_of(pod)} - {""})

    def _charge(self, pod: PodFacts) -> None:
        """Account for what a pod holds."""
        if not pod.holds:
            return
        pod.charged, pod.let_go = self._queue_of(pod), self._is_let_go(pod)
        self.table.hold(pod.node, pod.request, pod.job, leaving=pod.let_go, times=1)
        if pod.charged:
            self.tree.hold(pod.charged, pod.request.gpus, leaving=pod.let_go)
        self.standing.changed(pod.charged)

    def _discharge(self, pod: PodFacts) -> None:
        self.table.hold(pod.node, pod.request, pod.job, leaving=pod.let_go, times=-1)
        if pod.charged:
            self.tree.hold(pod.charged, -pod.request.gpus, leaving=pod.let_go)
        self.standing.changed(pod.charged)

    def _put_job(self, manifest: Manifest) -> None:
        key = "/".join(key_of(manifest))
        known = self.owners.get(key)
        before = known if isinstance(known, JobFacts) else None
        if (
            before is not None
            and before.uid == manifest["metadata"].get("uid")
            and before.version > version_of(manifest)
        ):
            return
        job = JobFacts.of(manifest, self.catalogue, before)
        if before is not None and before.queue != job.queue:
            del self.jobs_of[before.queue][key]
            self.changes.queues.add(before.queue)
        self.owners[key] = self.jobs_of[job.queue][key] = job
        if before is None or before.tasks != job.tasks:
            self._recharge(key)
        if before != job or before.pace != job.pace:
            self._dirty.add(key)
        if before != job or (before.pace != job.pace and job.unanswered):
            self.changes.queues.add(job.queue)

    def _put_group(self, group: GroupFacts) -> None:
        owner = _group(group.key)
        before = self.owners.get(owner)
        if before is not None and before.uid == group.uid and before.version > group.version:
            return
        self.owners[owner] = group
        if before != group:
            self.changes.queues.add(group.queue)
            self._recharge_group(owner, group)
        if before is not None and before.queue != group.queue:
            self.changes.queues.add(before.queue)

    def _drop_owner(self, owner: str, facts: JobFacts | GroupFacts) -> None:
        del self.owners[owner]
        self.changes.queues.add(facts.queue)
        self._dirty.add(owner)
        if isinstance(facts, JobFacts):
            del self.jobs_of[facts.queue][owner]
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
                self.changes.queues.update({pod.charged, self._queue_of(pod)} - {""})
                self._discharge(pod)
                self._charge(pod)

    def _put_shared(self, kind: str, name: str, manifest: Manifest | None) -> None:
        """A node or a queue."""
        if kind == "Node":
            changed = self.table.put(name, manifest)
            if changed:
                self._dirty.update(self.table.jobs_on(name))
        else:
            changed = self.tree.put(name, manifest)
            self.changes.tree |= changed
        if changed:
            self.changes.freed = True
            self.standing.changed(None)

    def _put_priority_class(self, key: Key, manifest: Manifest | None) -> None:
        known = self.priority_classes.get(key)
        if (known or {}).get("value") == (manifest or {}).get("value") and (known is None) == (manifest is None):
            return
        if manifest is None:
            del self.priority_classes[key]
        else:
            self.priority_classes[key] = manifest
        self._dirty.update(self.owners)
        self.changes.queues.update(self.jobs_of)

    def _queue_of(self, pod: PodFacts) -> str:
        """Its PodGroup's queue, or what its label says."""
        group = self.owners.get(_group(pod.group)) if pod.group else None
        return group.queue if group is not None else pod.queue

    def _is_let_go(self, pod: PodFacts) -> bool:
        """Whether it is leaving, or about to: between a smaller Job and its controller's deletion lies a moment."""
        job = self.owners.get(pod.job)
        return pod.leaving or (isinstance(job, JobFacts) and job.lets_go(pod.task, pod.index))

    def _owner_of(self, pod: PodFacts) -> str:
        return pod.job or (_group(pod.group) if pod.group else "")


def _group(key: str) -> str:
    """A PodGroup among the owners of pods; no Job has such a key."""
    return sys.intern(f"{key}/group")


def _key(text: str) -> Key:
    namespace, _, name = text.partition("/")
    return namespace, name
