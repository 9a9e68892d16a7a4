# SPDX-License-Identifier: Apache-2.0
"""A cluster as it is at a moment, from what `kubectl get vcjob,podgroup,queue,node,pod -o json` prints.

Objects are read as the autoscaler reads them (`elastic.autoscaler.observing`). Pods and PriorityClasses may be missing:
then it is not known where running Jobs are, and they are packed; or what a class is worth, and it counts as 0.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from kfp_volcano.elastic.autoscaler.observing.job_facts import JobFacts
from kfp_volcano.elastic.autoscaler.observing.needs import GPU_CLASS_LABELS, Catalogue
from kfp_volcano.elastic.autoscaler.observing.pod_facts import GroupFacts, PodFacts
from kfp_volcano.elastic.simulator.reading.shape import largest_node
from kfp_volcano.elastic.simulator.reading.standing import Packing, Standing, job_of, standing_group, standing_job
from kfp_volcano.elastic.simulator.scenario import ROOT, Node, Queue, Scenario
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.manifests.status import JobState
from kfp_volcano.volcano.model.nodes import is_ready
from kfp_volcano.volcano.model.objects import labels_of, parse_time, status_of
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kfp_volcano.elastic.simulator.reading.assumed import Assumed

__all__ = ["Dumped", "dumped", "dumped_scenario", "live"]

T = TypeVar("T")

_HOUR = 3600.0
_MILLI = 1000
_ZONE = "topology.kubernetes.io/zone"
_KINDS = {
    "Job": "batch.volcano.sh/",
    "PodGroup": "scheduling.volcano.sh/",
    "Queue": "scheduling.volcano.sh/",
    "Node": "v1",
    "Pod": "v1",
    "PriorityClass": "scheduling.k8s.io/",
}
"""What is read of a dump, and how the version of its API begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumped:
    """A cluster at a moment."""

    scenario: Scenario
    """Which begins at that moment: what runs is placed, what waits comes at once."""
    now: float
    """The moment, Unix seconds."""
    waiting_s: Mapping[str, float]
    """How long each waiting gang has waited, by job."""


def dumped_scenario(document: Any, assumed: Assumed, *, name: str, source: str) -> Scenario:
    """The scenario that begins with a dumped cluster. Raises SpecError with every object that is wrong."""
    return dumped(document, assumed, name=name, source=source).scenario


def live(objects: Callable[[str], tuple[Sequence[Mapping[str, Any]], Any]]) -> dict[str, Any]:
    """A dump of a living cluster; `objects` gives those of a kind, as `Cluster.list` does."""
    items = [
        {**each, "kind": kind, "apiVersion": version if "/" not in version else each.get("apiVersion", version)}
        for kind, version in _KINDS.items()
        for each in objects(kind)[0]
    ]
    return {"kind": "List", "items": items}


def dumped(document: Any, assumed: Assumed, *, name: str, source: str, now: float | None = None) -> Dumped:
    """A dumped cluster.

    Args:
        document: A List of objects, as JSON.
        assumed: What the dump does not tell.
        name: What the scenario is called.
        source: What messages call the dump.
        now: When it was, Unix seconds; None: the latest time that any object mentions.

    Raises:
        SpecError: It is no list of objects, one of them is wrong, or nothing of it could be replayed.
    """
    reading = _Reading(_items(document, source), source)
    moment = reading.latest if now is None else now
    return reading.dumped(assumed, name, moment)


def _items(document: Any, source: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The objects of a dump, each with its place."""
    items = document.get("items") if isinstance(document, dict) else document
    if not isinstance(items, list):
        remedy = "kubectl get vcjob,podgroup,queue,node,pod -A -o json"
        raise SpecError([Problem(source, "is no list of Kubernetes objects", remedy)], source=source)
    wrong: list[Problem] = []
    found: list[tuple[str, Mapping[str, Any]]] = []
    for index, item in enumerate(items):
        if isinstance(item, dict) and isinstance(item.get("metadata"), dict) and isinstance(item.get("kind"), str):
            found.append((f"items[{index}]", item))
        else:
            wrong.append(Problem(f"items[{index}]", "is no Kubernetes object", "kind and metadata, as kubectl prints"))
    if wrong:
        raise SpecError(wrong, source=source)
    return found


class _Reading:
    """What was read of a dump."""

    def __init__(self, items: Sequence[tuple[str, Mapping[str, Any]]], source: str) -> None:
        self._source = source
        self._problems: list[Problem] = []
        self._catalogue = Catalogue()
        self._by_kind: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        self.latest = 0.0
        for place, item in items:
            version = str(item.get("apiVersion", ""))
            if version.startswith(_KINDS.get(item["kind"], "\0")):
                self._by_kind[item["kind"]].append((place, item))
        self._nodes = self._read("Node", _node)
        self._queues = self._read("Queue", _queue)
        self._classes = dict(self._read("PriorityClass", _class))
        self._pods = self._read("Pod", lambda each: PodFacts.of(each, self._catalogue))
        self._jobs = self._read("Job", lambda each: JobFacts.of(each, self._catalogue))
        self._groups = self._read("PodGroup", GroupFacts.of)
        self._ends = [end for end in self._read("Job", _lasted) if end]
        if self._problems:
            raise SpecError(self._problems, source=source)
        self.latest = max(
            (time for _, each in items for time in _times(each)),
            default=0.0,
        )
        self.latest = max([self.latest, *(job.pace.at for job in self._jobs if job.pace)])

    def _read(self, kind: str, read: Callable[[Any], T]) -> list[T]:
        found = [self._one(place, item, read) for place, item in self._by_kind[kind]]
        return [each for each in found if each is not None]

    def _one(self, place: str, item: Any, read: Callable[[Any], T]) -> T | None:
        try:
            return read(item)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            key = "/".join(str(item["metadata"][part]) for part in ("namespace", "name") if part in item["metadata"])
            what = f"cannot be read ({type(error).__name__}: {error})"
            self._problems.append(Problem(f"{place}, {item['kind']} {key}", what, "as kubectl prints it"))
            return None

    def dumped(self, assumed: Assumed, name: str, now: float) -> Dumped:
        """The scenario from here on."""
        notes: list[str] = []
        nodes = self._cluster(assumed, notes)
        packing = Packing(nodes)
        usual = median(self._ends) if self._ends else _HOUR
        by_job: dict[str, list[PodFacts]] = defaultdict(list)
        by_group: dict[str, list[PodFacts]] = defaultdict(list)
        for pod in self._pods:
            by_job[pod.job].append(pod)
            by_group[pod.group].append(pod)
        standing: list[Standing] = []
        for job in self._jobs:
            if job.state in {JobState.PENDING, JobState.RUNNING, JobState.RESTARTING} and not job.leaving:
                standing += standing_job(job, by_job.get(job.key, ()), now=now, pods_known=bool(self._pods))
        owned = {job.key for job in self._jobs}
        for group in self._groups:
            if group.job not in owned:
                standing += standing_group(group, by_group.get(group.key, ()))
        standing.sort(key=lambda each: (not each.running, each.created, each.key))
        if held := sum(each.held for each in standing):
            notes.append(f"{held} jobs are held by a person, and keep their size")
        guessed = sum(each.pace is None for each in standing)
        if guessed:
            notes.append(
                f"{guessed} jobs do not report progress: what runs is taken to run as long again as it has, what waits "
                f"for {usual / 60:.0f} minutes"
            )
        jobs, node_gpus = [], largest_node(nodes)
        for index, each in enumerate(standing):
            placed = packing.place(each) if each.running else ()
            priority = self._classes.get(each.priority_class, 0)
            jobs.append(
                job_of(
                    each,
                    assumed,
                    at=index * 1e-3,
                    now=now,
                    usual_s=usual,
                    placed=placed,
                    priority=priority,
                    node_gpus=node_gpus,
                )
            )
        if not jobs:
            raise SpecError("holds no Job and no gang that runs or waits", source=self._source)
        named = {queue.name for queue in self._queues}
        queues = (*self._queues, *(Queue(name=queue) for queue in sorted({job.queue for job in jobs} - named)))
        return Dumped(
            scenario=Scenario(
                name=name, nodes=nodes, jobs=tuple(jobs), queues=queues, source=self._source, notes=tuple(notes)
            ),
            now=now,
            waiting_s={each.key: max(0.0, now - each.created) for each in standing if not each.running},
        )

    def _cluster(self, assumed: Assumed, notes: list[str]) -> tuple[Node, ...]:
        """The nodes, without what pods that are in no gang hold on them."""
        if assumed.nodes:
            return assumed.nodes
        if not self._nodes:
            remedy = "kubectl get node -o json besides, or --nodes 16x8"
            raise SpecError([Problem(self._source, "holds no nodes", remedy)], source=self._source)
        held, others = self._held()
        usable = []
        for node, takes_pods in self._nodes:
            gpus = (node.gpus if takes_pods else min(node.gpus, held[node.name])) - others[node.name]
            if gpus > 0:
                usable.append(replace(node, gpus=gpus))
        if others:
            notes.append(f"{sum(others.values())} GPUs are held by pods of no gang, and left out with them")
        if closed := sum(not takes_pods for _, takes_pods in self._nodes):
            notes.append(f"{closed} nodes take no new pods: of their GPUs only those that are held count")
        if not usable:
            raise SpecError("holds no node with GPUs that takes pods", source=self._source)
        return tuple(usable)

    def _held(self) -> tuple[Counter[str], Counter[str]]:
        """GPUs by node that pods hold, and of these those of pods that are in no gang."""
        gangs = {job.key for job in self._jobs}
        held: Counter[str] = Counter()
        others: Counter[str] = Counter()
        for pod in self._pods:
            if pod.holds and pod.request.gpus:
                held[pod.node] += pod.request.gpus
                if pod.job not in gangs and not pod.group:
                    others[pod.node] += pod.request.gpus
        return held, others


def _node(manifest: Any) -> tuple[Node, bool]:
    """A node, and whether it takes pods."""
    labels, status = labels_of(manifest), status_of(manifest)
    room = status.get("allocatable") or status.get("capacity") or {}
    gpu_class = next((str(labels[label]) for label in GPU_CLASS_LABELS if label in labels), "")
    node = Node(
        name=str(manifest["metadata"]["name"]),
        gpus=parse_quantity(room.get(GPU, 0)) // _MILLI,
        gpu_class=gpu_class,
        zone=str(labels.get(_ZONE, "")),
    )
    return node, is_ready(manifest) and not (manifest.get("spec") or {}).get("unschedulable")


def _class(manifest: Any) -> tuple[str, int]:
    """A PriorityClass' name and value."""
    return str(manifest["metadata"]["name"]), int(manifest["value"])


def _queue(manifest: Any) -> Queue:
    spec = manifest.get("spec") or {}
    name = str(manifest["metadata"]["name"])
    if name == ROOT:
        return Queue(name=ROOT, parent="", capability=_gpus(spec.get("capability")))
    return Queue(
        name=name,
        parent=str(spec.get("parent") or ROOT),
        capability=_gpus(spec.get("capability")),
        deserved=_gpus(spec.get("deserved")),
        guarantee=_gpus((spec.get("guarantee") or {}).get("resource")) or 0,
        weight=int(spec.get("weight") or 1),
        priority=int(spec.get("priority") or 0),
        reclaimable=spec.get("reclaimable") is not False,
    )


def _gpus(amounts: Mapping[str, Any] | None) -> int | None:
    return parse_quantity(amounts[GPU]) // _MILLI if amounts and GPU in amounts else None


def _lasted(manifest: Any) -> float:
    """How long an ended Job lasted; 0 for others."""
    state = status_of(manifest).get("state") or {}
    if state.get("phase") != "Completed" or "lastTransitionTime" not in state:
        return 0.0
    return max(0.0, parse_time(state["lastTransitionTime"]) - parse_time(manifest["metadata"]["creationTimestamp"]))


def _times(manifest: Mapping[str, Any]) -> Iterator[float]:
    """Times that an object mentions."""
    status = manifest.get("status")
    conditions = (status.get("conditions") if isinstance(status, dict) else None) or ()
    texts = [manifest["metadata"].get("creationTimestamp")]
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict):
            texts += [each.get("lastTransitionTime"), each.get("lastHeartbeatTime")]
    for text in texts:
        try:
            found = parse_time(str(text))
        except ValueError:
            continue
        if math.isfinite(found):
            yield found
