# SPDX-License-Identifier: Apache-2.0
"""Which Job: a reference that travels between steps as text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.errors import NotFoundError, SpecError
from kfp_volcano.schemas.names import ENV_RUN_ID

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["JobRef", "effective_run_id"]


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
        try:
            return cluster.get("Job", self.name, self.namespace)
        except NotFoundError:
            raise NotFoundError(
                f"there is no Job {self}; kfp-volcano jobs list --all-namespaces shows those that are"
            ) from None


def effective_run_id(run_id: str) -> str:
    """The run's id: KFP's, or on this machine the one a run is taken up again under (`run --run-id`)."""
    return os.environ.get(ENV_RUN_ID) or run_id
