# SPDX-License-Identifier: Apache-2.0
"""Carries out what is to be done about pods whose preflight failed (`unfit`), and about nodes' marks.

Whoever follows a Job does so, and the autoscaler: each change tests what it was decided on, so that two do no more
than one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.commands import command
from kfp_volcano.elastic.autoscaler.unfit import (
    Action,
    Fail,
    Mark,
    Note,
    Release,
    Restart,
    TakeAway,
    expiry,
    releases,
)
from kfp_volcano.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError
from kfp_volcano.schemas.names import MOVES, UNFIT, UNFIT_LABEL
from kfp_volcano.schemas.records import dump
from kfp_volcano.volcano.cluster.annotations import annotation_patch
from kfp_volcano.volcano.manifests.pointer import pointer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["carry_out", "marked_nodes", "release_expired"]

_LABELLED = "true"


def carry_out(cluster: Cluster, job: Manifest, wanted: Iterable[Action]) -> Fail | None:
    """Do what is to be done for a Job, in its order; returns what ended the Job, if anything did.

    Stops where another was faster: look again. Raises ForbiddenError where nodes may not be marked; the Job's pods are
    as they were then.
    """
    with suppress(ConflictError, NotFoundError):
        for action in wanted:
            match action:
                case Note(moves):
                    patch = annotation_patch(job, MOVES, dump(list(moves)))
                    job = cluster.patch("Job", job["metadata"]["name"], job["metadata"]["namespace"], patch)
                case Mark(node):
                    _mark(cluster, node, action)
                case TakeAway(pod, uid):
                    with suppress(NotFoundError, ConflictError):
                        cluster.delete("Pod", pod, job["metadata"]["namespace"], uid=uid)
                case Restart():
                    command(cluster, job, "RestartJob", "the preflight of a pod failed on its node")
                case Fail(why):
                    command(cluster, job, "TerminateJob", why)
                    return action
                case Release(node, text):
                    _release(cluster, node, text)
    return None


def marked_nodes(cluster: Cluster) -> list[Manifest]:
    """The nodes with a mark; none where this process may not see nodes."""
    try:
        return cluster.list("Node", labels={UNFIT_LABEL: _LABELLED})[0]
    except ForbiddenError:
        return []


def release_expired(cluster: Cluster, now: float) -> None:
    """Take the marks off all nodes whose time is over, as far as this process may."""
    with suppress(ClusterError):
        for action in releases(marked_nodes(cluster), now):
            _release(cluster, action.node, action.text)


def _mark(cluster: Cluster, name: str, mark: Mark) -> None:
    node = cluster.get("Node", name)
    if (expiry(node) or 0.0) >= mark.unfit.until:
        return
    cluster.patch("Node", name, "", [*annotation_patch(node, UNFIT, dump(mark.unfit)), *_label(node)])


def _label(node: Manifest) -> list[dict[str, Any]]:
    if not node["metadata"].get("labels"):
        return [{"op": "add", "path": "/metadata/labels", "value": {UNFIT_LABEL: _LABELLED}}]
    return [{"op": "add", "path": pointer("metadata", "labels", UNFIT_LABEL), "value": _LABELLED}]


def _release(cluster: Cluster, name: str, text: str) -> None:
    """Take a mark off, unless it is another by now."""
    at = pointer("metadata", "annotations", UNFIT)
    patch = [
        {"op": "test", "path": at, "value": text},
        {"op": "remove", "path": at},
        {"op": "remove", "path": pointer("metadata", "labels", UNFIT_LABEL)},
    ]
    with suppress(ConflictError, NotFoundError):
        cluster.patch("Node", name, "", patch)
