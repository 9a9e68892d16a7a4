# SPDX-License-Identifier: Apache-2.0
"""What matters of pods and PodGroups, in little room: there are tens of thousands."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.observing.needs import Request  # noqa: TC001 - a type of fields
from kfp_volcano.elastic.autoscaler.unfit import failure_of
from kfp_volcano.schemas.names import GPU
from kfp_volcano.volcano.model.objects import ENDED, labels_of, parse_time, phase_of, status_of, terminating
from kfp_volcano.volcano.model.resources import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.elastic.autoscaler.observing.needs import Catalogue
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["GroupFacts", "PodFacts", "created_at", "version_of"]

_GROUP = "scheduling.k8s.io/group-name"
_WAITS = frozenset({"Pending", "Inqueue"})


@dataclass(slots=True)
class PodFacts:
    """A pod. Equal where nothing has changed that matters."""

    key: str
    """namespace/name."""
    uid: str
    version: int = field(compare=False)
    job: str
    """The Volcano Job that it belongs to, as namespace/name; empty where there is none."""
    task: str
    index: int
    """Within its task: the end of its name."""
    group: str
    """Its PodGroup, as namespace/name; empty where there is none."""
    queue: str
    """As its label says."""
    node: str
    phase: str
    leaving: bool
    request: Request
    created: float
    ready: bool | None = field(compare=False)
    ready_since: float | None = field(compare=False)
    started: float | None = field(compare=False)
    unfit: bool
    """Whether its preflight has failed."""
    charged: str = field(default="", compare=False)
    """The queue in which what it holds is accounted for."""
    let_go: bool = field(default=False, compare=False)
    """Whether it is accounted for as leaving."""

    @classmethod
    def of(cls, pod: Manifest, catalogue: Catalogue) -> PodFacts:
        """Read a pod."""
        metadata, spec, status = pod["metadata"], pod["spec"], status_of(pod)
        labels, namespace = labels_of(pod), metadata.get("namespace", "")
        name = str(metadata["name"])
        tail = name.rpartition("-")[2]
        job = labels.get("volcano.sh/job-name")
        group = (metadata.get("annotations") or {}).get(_GROUP)
        ready = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), None)
        since = (ready or {}).get("lastTransitionTime")
        started = status.get("startTime")
        return cls(
            key=f"{namespace}/{name}",
            uid=str(metadata.get("uid", "")),
            version=version_of(pod),
            job=sys.intern(f"{namespace}/{job}") if job else "",
            task=sys.intern(str(labels.get("volcano.sh/task-spec", ""))),
            index=int(tail) if tail.isdigit() else -1,
            group=sys.intern(f"{namespace}/{group}") if group else "",
            queue=sys.intern(str(labels.get("volcano.sh/queue-name", ""))),
            node=sys.intern(str(spec.get("nodeName") or "")),
            phase=sys.intern(phase_of(pod)),
            leaving=terminating(pod),
            request=catalogue.request(spec),
            created=created_at(pod),
            ready=None if ready is None else ready.get("status") == "True",
            ready_since=parse_time(since) if since else None,
            started=parse_time(started) if started else None,
            unfit=failure_of(pod) is not None,
        )

    @property
    def name(self) -> str:
        """Without its namespace."""
        return self.key.rpartition("/")[2]

    @property
    def ended(self) -> bool:
        """Whether nothing of it will run any more."""
        return self.phase in ENDED

    @property
    def holds(self) -> bool:
        """Whether it occupies its node; a terminating one does until it is gone."""
        return bool(self.node) and not self.ended

    @property
    def waits(self) -> bool:
        """Whether it waits for a node."""
        return not self.node and not self.leaving

    @property
    def stays(self) -> bool:
        """Whether it has a node and keeps it."""
        return self.holds and not self.leaving

    @property
    def runs(self) -> bool:
        """Whether its phase says so."""
        return self.phase == "Running"

    def manifest(self) -> Manifest:
        """What the steps of a resize read of a pod."""
        namespace, _, name = self.key.partition("/")
        labels = {"volcano.sh/job-name": self.job.partition("/")[2], "volcano.sh/task-spec": self.task}
        leaving = {"deletionTimestamp": "1970-01-01T00:00:00Z"} if self.leaving else {}
        return {
            "metadata": {"name": name, "namespace": namespace, "labels": labels, **leaving},
            "spec": {"nodeName": self.node} if self.node else {},
            "status": {"phase": self.phase},
        }


@dataclass(slots=True)
class GroupFacts:
    """A PodGroup."""

    key: str
    uid: str
    version: int = field(compare=False)
    queue: str
    job: str
    """The Volcano Job that owns it, as namespace/name; empty for gangs of Ray, Spark and others."""
    waits: bool
    members: int
    gpus: int
    """What its minimum asks for."""
    created: float
    priority_class: str

    @classmethod
    def of(cls, group: Manifest) -> GroupFacts:
        """Read a PodGroup."""
        metadata, spec = group["metadata"], group["spec"]
        namespace = metadata.get("namespace", "")
        owner = next((each for each in metadata.get("ownerReferences") or () if _is_volcano_job(each)), None)
        return cls(
            key=f"{namespace}/{metadata['name']}",
            uid=str(metadata.get("uid", "")),
            version=version_of(group),
            queue=sys.intern(str(spec.get("queue") or "default")),
            job=sys.intern(f"{namespace}/{owner.get('name')}") if owner else "",
            waits=status_of(group).get("phase", "Pending") in _WAITS,
            members=max(1, int(spec.get("minMember", 1))),
            gpus=parse_quantity((spec.get("minResources") or {}).get(GPU, 0)) // 1000,
            created=created_at(group),
            priority_class=sys.intern(str(spec.get("priorityClassName") or "")),
        )


def _is_volcano_job(owner: Mapping[str, Any]) -> bool:
    """Kubernetes' own Jobs are called so too: Volcano's scheduler makes PodGroups for their pods."""
    return owner.get("kind") == "Job" and str(owner.get("apiVersion", "")).startswith("batch.volcano.sh/")


def created_at(manifest: Manifest) -> float:
    """When an object was created, Unix seconds."""
    return parse_time(str(manifest["metadata"].get("creationTimestamp", "1970-01-01T00:00:00Z")))


def version_of(manifest: Manifest) -> int:
    """An object's resource version, which grows with every change (KEP-5504); 0 where it has none."""
    text = str(manifest["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0
