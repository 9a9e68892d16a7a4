# SPDX-License-Identifier: Apache-2.0
"""Telling Volcano's job controller what to do with a Job: by a Command object, as `vcctl` does.

A Job that is ended so keeps its object, and with it its record, for the report.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kfp_volcano.errors import ConflictError
from kfp_volcano.schemas.names import labels_for
from kfp_volcano.volcano.model.objects import reference_to

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["command"]


def command(cluster: Cluster, job: Manifest, verb: str, why: str) -> None:
    """Tell the job controller what to do with a Job (`TerminateJob`, …); once where it has not heard of it yet."""
    metadata, target = job["metadata"], reference_to(job)
    with suppress(ConflictError):
        cluster.create(
            {
                "apiVersion": "bus.volcano.sh/v1alpha1",
                "kind": "Command",
                "metadata": {
                    "name": f"{metadata['name']}-{verb.lower()}",
                    "namespace": metadata["namespace"],
                    "labels": labels_for(metadata["name"]),
                    "ownerReferences": [target],
                },
                "action": verb,
                "target": {**target, "controller": True},
                "reason": "kfp-volcano",
                "message": why,
            }
        )
