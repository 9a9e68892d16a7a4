# SPDX-License-Identifier: Apache-2.0
"""The one seam to a cluster: what the launcher and the autoscaler may ask of it.

Objects are plain dicts in their Kubernetes form. Two adapters implement the port: `embedded` (this machine) and
`kubernetes` (a real cluster); one conformance suite holds both to what is written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["KINDS", "Cluster", "Event", "Findings", "Kind", "Manifest", "Page", "Patch"]

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as plain JSON values."""

Patch: TypeAlias = "Sequence[Mapping[str, Any]]"
"""An RFC 6902 JSON Patch."""

Page: TypeAlias = tuple[list[Manifest], str]
"""Objects, and the resource version at which they were read."""

Findings: TypeAlias = list[tuple[str, str, str]]
"""What keeps a Job from running: (path in the Job, what, remedy) each."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object and where the API serves it."""

    name: str
    api_version: str
    plural: str
    namespaced: bool = True


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("Job", "batch.volcano.sh/v1alpha1", "jobs"),
        Kind("CronJob", "batch.volcano.sh/v1alpha1", "cronjobs"),
        Kind("PodGroup", "scheduling.volcano.sh/v1beta1", "podgroups"),
        Kind("Queue", "scheduling.volcano.sh/v1beta1", "queues", namespaced=False),
        Kind("Command", "bus.volcano.sh/v1alpha1", "commands"),
        Kind("Pod", "v1", "pods"),
        Kind("Node", "v1", "nodes", namespaced=False),
        Kind("Event", "v1", "events"),
        Kind("Namespace", "v1", "namespaces", namespaced=False),
        Kind("ServiceAccount", "v1", "serviceaccounts"),
        Kind("PersistentVolumeClaim", "v1", "persistentvolumeclaims"),
        Kind("ConfigMap", "v1", "configmaps"),
        Kind("Deployment", "apps/v1", "deployments"),
        Kind("Secret", "v1", "secrets"),
        Kind("ResourceQuota", "v1", "resourcequotas"),
        Kind("Lease", "coordination.k8s.io/v1", "leases"),
        Kind("ResourceClaimTemplate", "resource.k8s.io/v1", "resourceclaimtemplates"),
        Kind("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
        Kind("Workflow", "argoproj.io/v1alpha1", "workflows"),
    )
}
"""The kinds this project reads or writes, by name."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change seen by a watch. A BOOKMARK only moves `resource_version` on."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Manifest

    @property
    def resource_version(self) -> str:
        """Where a later watch goes on from."""
        return str(self.object["metadata"]["resourceVersion"])


class Cluster(Protocol):
    """What a cluster must offer.

    Every call raises a `ClusterError`: `NotFoundError`, `ConflictError`, `InvalidError` (admission),
    `ForbiddenError` or `UnavailableError`, and nothing else. `namespace` is ignored for cluster-scoped kinds.
    """

    def create(self, manifest: Manifest) -> Manifest:
        """Create an object; returns it as stored. Raises ConflictError if it exists, InvalidError if refused."""
        ...

    def get(self, kind: str, name: str, namespace: str = "") -> Manifest:
        """Read an object."""
        ...

    def list(
        self,
        kind: str,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[list[Manifest], str]:
        """Read all objects of a kind (an empty namespace: of all namespaces) and the resource version of that read.

        Only those with all `labels`, and whose `fields` are so: Kubernetes knows `metadata.name` and
        `metadata.namespace` of every kind, and those few of some that its field selectors support.
        """
        ...

    def pages(self, kind: str, namespace: str = "") -> Iterator[Page]:
        """Read all objects of a kind part by part, so that they need not all be held at once.

        Yields some of them, none where there are none, and the resource version of the read, the same each time.
        Raises ConflictError where that version is gone before all was read: begin anew.
        """
        ...

    def patch(self, kind: str, name: str, namespace: str, patch: Patch) -> Manifest:
        """Apply a JSON Patch atomically; a failed `test` raises ConflictError and changes nothing."""
        ...

    def delete(self, kind: str, name: str, namespace: str = "", *, grace_s: float | None = None, uid: str = "") -> None:
        """Ask for an object's deletion; what it owns is deleted too. Raises NotFoundError for what is not there.

        With `uid` only that very object goes: ConflictError where another one has its name by now.
        """
        ...

    def watch(
        self, kind: str, namespace: str = "", *, resource_version: str, timeout_s: float = 30.0
    ) -> Iterator[Event]:
        """Yield changes after `resource_version` as they come; ends after `timeout_s` with a BOOKMARK.

        Raises ConflictError when `resource_version` is too old to go on from (410 Gone): list again.
        """
        ...

    def logs(self, pod: str, namespace: str, *, after: str = "", tail: int | None = None) -> tuple[str, str]:
        """The lines a pod has printed after a place, over all restarts of its container, and the place behind them.

        The text ends with a line's end or is empty: a line that is not ended yet is left for later. Places are the
        cluster's own: they may be kept and used by another process. The empty one is the beginning. `tail` leaves
        all but the last so many lines out.
        """
        ...

    def follow_logs(
        self, pod: str, namespace: str, *, after: str = "", stop: threading.Event
    ) -> Iterator[tuple[str, str]]:
        """Yield what `logs` would return, as it is printed, until the pod has ended or `stop` is set.

        Goes on over restarts and broken connections; raises UnavailableError where the node does not answer at all.
        `stop` is looked at with each line, and once a minute.
        """
        ...

    def volume(self, namespace: str, claim: str) -> Path | None:
        """The folder under which this process sees a volume claim's files, or None where it does not mount it."""
        ...

    def own_pod(self) -> Manifest | None:
        """The pod of this cluster that this process runs in, or None where it runs in none.

        As the cluster has it, or its name and namespace alone where this process may not read it.
        """
        ...

    def preflight(self, job: Manifest) -> Findings:
        """What keeps a Job from running here although its manifest is valid: (path in the Job, what, remedy) each.

        For instance a queue that is not there or closed, a priority class that is not there, a gang larger than all
        nodes, a program that is missing.
        """
        ...
