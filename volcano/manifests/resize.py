# SPDX-License-Identifier: Apache-2.0
"""The size of a Job, and the one patch that changes it.

A resize replaces `elastic.replicas` and nothing else: minAvailable stays, so that growing never takes from others and
shrinking never touches the gang. The patch tests what it was made from; a Job that has changed in between refuses it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import ResizeError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["resize_patch", "workers"]


def workers(job: Mapping[str, Any]) -> int:
    """How many workers a Job asks for: its gang and its surplus."""
    return sum(int(task["replicas"]) for task in job["spec"]["tasks"] if task["name"] in {names.CORE, names.ELASTIC})


def resize_patch(job: Mapping[str, Any], to_workers: int) -> list[dict[str, Any]]:
    """The JSON Patch (RFC 6902) that gives a Job, as read from the cluster, `to_workers` workers.

    Raises ResizeError where the Job cannot be resized at all, or not to that size.
    """
    key = f"{job['metadata'].get('namespace', 'default')}/{job['metadata']['name']}"
    tasks = {task["name"]: (index, int(task["replicas"])) for index, task in enumerate(job["spec"]["tasks"])}
    if names.CORE not in tasks or names.ELASTIC not in tasks:
        raise ResizeError(f"{key} has a fixed number of workers: give roles.worker.replicas a min and a max")
    _, core = tasks[names.CORE]
    index, surplus = tasks[names.ELASTIC]
    largest = _largest(job, key)
    if not core <= to_workers <= largest:
        raise ResizeError(f"{key} cannot have {counted(to_workers, 'worker')}: its spec allows {core} to {largest}")
    path = f"/spec/tasks/{index}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": job["metadata"]["uid"]},
        {"op": "test", "path": f"{path}/name", "value": names.ELASTIC},
        {"op": "test", "path": f"{path}/replicas", "value": surplus},
        {"op": "replace", "path": f"{path}/replicas", "value": to_workers - core},
    ]


def _largest(job: Mapping[str, Any], key: str) -> int:
    text = job["metadata"].get("annotations", {}).get(names.SPEC)
    if text is None:
        raise ResizeError(f"{key} lacks the annotation {names.SPEC}: it was not made by kfp-volcano")
    return int(json.loads(text)["spec"]["roles"]["worker"]["replicas"]["max"])
