# SPDX-License-Identifier: Apache-2.0
"""What a cluster's objects come to for the autoscaler, kept up to date change by change.

It keeps little of each object, updates what a change touches and nothing else, and says which queues that concerns: the
cost of a change does not grow with the cluster, and a queue's snapshot costs as much as the queue is large.

Law: whatever the order of the kinds, and however often a change is told, also late after a list, the index is the one
that would be made of the objects as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.observing.books import Books, Changes
from kfp_volcano.elastic.autoscaler.observing.elastic_jobs import as_of, timeline_of, worker_pods
from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts
from kfp_volcano.elastic.autoscaler.observing.pod_facts import PodFacts, version_of
from kfp_volcano.volcano.model.objects import key_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kfp_volcano.elastic.autoscaler.observing.claims import Claims
    from kfp_volcano.elastic.policies.snapshot import ElasticJob, QueueSnapshot
    from kfp_volcano.volcano.cluster.base import Event, Manifest
    from kfp_volcano.volcano.model.objects import Key

__all__ = ["WATCHED", "Changes", "ClusterIndex"]

WATCHED = ("Queue", "PodGroup", "Job", "Pod", "Node", "PriorityClass")
"""The kinds it is made of."""


class ClusterIndex:
    """Compact records of the objects of `WATCHED`. A `Sink`; for one thread at a time."""

    def __init__(self) -> None:
        self._books = Books()
        self._floors: dict[str, int] = dict.fromkeys(WATCHED, 0)
        """Up to which resource version all is known of a kind: what comes later with a smaller one is old."""
        self._claims: Claims | None = None
        """As they were when changes were asked for last."""

    # What it is told.

    def page(self, kind: str, objects: Sequence[Manifest]) -> None:
        """Some of all objects of a kind."""
        for each in objects:
            self._books.put(kind, each)

    def listed(self, kind: str, keys: AbstractSet[Key], version: str = "") -> None:
        """These are all there are of a kind, as of this resource version."""
        self._floors[kind] = max(self._floors[kind], int(version) if version.isdigit() else 0)
        for key in [key for key in self._books.keys(kind) if key not in keys]:
            self._books.remove(kind, key)

    def apply(self, kind: str, event: Event) -> None:
        """A change."""
        version = version_of(event.object)
        if event.type == "DELETED":
            self._books.remove(kind, key_of(event.object), str(event.object["metadata"].get("uid", "")))
        elif event.type != "BOOKMARK" and (not version or version > self._floors[kind]):
            self._books.put(kind, event.object)
        self._floors[kind] = max(self._floors[kind], version)

    def replace(self, kind: str, objects: Sequence[Manifest], version: str = "") -> None:
        """All objects of a kind as they are."""
        self.page(kind, objects)
        self.listed(kind, set(map(key_of, objects)), version)

    def written(self, job: Manifest) -> None:
        """A Job as the answer to an own change has it: it counts at once, before the watch tells of it."""
        if version_of(job) > self._floors["Job"]:
            self._books.put("Job", job)

    # What it is asked.

    @property
    def queues(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each queue, by name."""
        return self._books.tree.labels

    @property
    def priorities(self) -> dict[str, int]:
        """The PriorityClasses, name to value."""
        return {name: int(each.get("value") or 0) for (_, name), each in self._books.priority_classes.items()}

    def waits(self, job: str) -> bool:
        """Whether a Job's gang waits."""
        self._books.settle()
        return self._books.standing.gang(job) is not None

    @property
    def size(self) -> int:
        """How many Jobs, PodGroups and pods there are."""
        return self._books.size

    @property
    def restless(self) -> bool:
        """Whether there are changes to be asked for."""
        return self._books.restless

    def changes(self) -> Changes:
        """What has changed since this was asked last."""
        self._books.settle()
        before, now = self._claims, self._books.standing.claims()
        if now is not before:
            self._books.changes.queues.update(now.asked_anew(before))
            self._claims = now
        changes, self._books.changes = self._books.changes, Changes()
        return changes

    def snapshot(self, queue: str, now: float, namespace: str = "", *, pods: bool = False) -> QueueSnapshot:
        """The snapshot of a queue.

        Args:
            queue: The queue's name.
            now: Unix seconds.
            namespace: Where Jobs may be resized; those of other namespaces only count as load. Empty: everywhere.
            pods: Whether to tell of each worker's pod.
        """
        self._books.settle()
        seen = self._books.standing.snapshot(queue, now, dict(self._elastic(queue, now, namespace)))
        if not pods:
            return seen
        return replace(seen, jobs=tuple(replace(job, pods=worker_pods(self.pods_of(job.key))) for job in seen.jobs))

    def jobs_of(self, queue: str) -> Collection[JobFacts]:
        """All Jobs of a queue."""
        return self._books.jobs_of.get(queue, {}).values()

    def job(self, key: str) -> JobFacts | None:
        """A Job, by namespace/name."""
        found = self._books.owners.get(key)
        return found if isinstance(found, JobFacts) else None

    def version(self, job: str) -> int:
        """The resource version of a Job as it is known; 0 for one that is not."""
        found = self._books.owners.get(job)
        return found.version if found else 0

    def pods_of(self, job: str) -> Collection[PodFacts]:
        """A Job's pods."""
        return self._books.pods_of(job)

    @property
    def marked_nodes(self) -> Collection[Manifest]:
        """The nodes that are marked as unfit, whoever marked them."""
        return self._books.table.marked.values()

    def timeline_entry(self, queue: str, now: float) -> dict[str, Any]:
        """The queue's line for `queue.jsonl`; `gpus` are held, `pending_gpus` asked for by pods that wait."""
        self._books.settle()
        jobs = sorted(self.jobs_of(queue), key=lambda job: job.key)
        entries = (timeline_of(job, self.pods_of(job.key), self._books.standing.gang(job.key)) for job in jobs)
        return {
            "kind": "queue",
            "time": now,
            "queue": queue,
            "limit": self._books.tree.limit(queue, self._books.table.total),
            "allocated": self._books.tree.held(queue),
            "jobs": [entry for entry in entries if entry],
        }

    def _elastic(self, queue: str, now: float, namespace: str) -> Iterator[tuple[str, ElasticJob]]:
        for key, job in self._books.jobs_of.get(queue, {}).items():
            seen = self._books.standing.elastic.get(key)
            if seen is not None and (not namespace or key.startswith(f"{namespace}/")):
                yield key, as_of(seen, job, now)
