"""Which Job: a reference that travels between steps as text, and how to find a run's Job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_volcano.errors import ForbiddenError, SpecError
from kfp_volcano.schemas.names import ENV_RUN_ID, RUN_LABEL, run_label

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["JobRef", "effective_run_id", "find_job"]

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""In every pod with a service account."""


@dataclass(frozen=True, slots=True)
class JobRef:
    """A Job by namespace and name; as text `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> JobRef:
        """Read `namespace/name`. Raises SpecError for anything else."""
        namespace, slash, name = text.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise SpecError(f"{text!r} is not namespace/name", source="job")
        return cls(namespace, name)

    @classmethod
    def of(cls, manifest: Manifest) -> JobRef:
        """The reference of a Job object."""
        return cls(manifest["metadata"]["namespace"], manifest["metadata"]["name"])

    def read(self, cluster: Cluster) -> Manifest:
        """The Job object. Raises NotFoundError."""
        return cluster.get("Job", self.name, self.namespace)


def effective_run_id(run_id: str) -> str:
    """The run's id: KFP's, or on this machine the one a run is taken up again under (`run --run-id`)."""
    return os.environ.get(ENV_RUN_ID) or run_id


def find_job(cluster: Cluster, run_id: str) -> Manifest | None:
    """The Job of a run, found by its label; None where there is none (it was never created, or is gone).

    A pod that may not look into all namespaces looks into its own.
    """
    labels = {RUN_LABEL: run_label(run_id)}
    try:
        jobs, _ = cluster.list("Job", labels=labels)
    except ForbiddenError:
        if not _OWN_NAMESPACE.is_file():
            raise
        jobs, _ = cluster.list("Job", _OWN_NAMESPACE.read_text(encoding="utf-8").strip(), labels)
    return jobs[0] if jobs else None
