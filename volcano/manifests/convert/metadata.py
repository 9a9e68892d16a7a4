# SPDX-License-Identifier: Apache-2.0
"""The name, labels and annotations of a job of another operator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.schemas import names
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["Metadata", "read_labels", "read_metadata", "reserved"]

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 63
_QUEUE = "scheduling.volcano.sh/queue-name"
_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"
_KUEUE = "kueue.x-k8s.io/"
_OPERATOR = "training.kubeflow.org/"
_SAID_OTHERWISE = {
    "volcano.sh/preemptable": (
        "workers above spec.roles.worker.replicas.min may be taken, those of the gang may not",
        "a range of replicas",
    ),
}
"""Volcano's annotations of a user's whose matter a TrainingJob decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a TrainingJob takes over."""

    name: str
    namespace: str | None
    labels: dict[str, str]
    annotations: dict[str, str]
    queue: str | None
    """Volcano's queue, where an annotation names it."""


def read_metadata(document: View) -> Metadata:
    """Read `metadata` of an object (meta/v1 ObjectMeta); what its API server set is no part of what was asked for."""
    view = document.map("metadata")
    labels, annotations, queue = read_labels(view)
    found = Metadata(
        name=_name(view),
        namespace=view.text("namespace", to="metadata.namespace"),
        labels=labels,
        annotations=annotations,
        queue=queue,
    )
    for key in view.rest():
        view.lost(key, "belongs to the object on its cluster, not to what was asked for")
    document.lost("status", "is the state of the object on its cluster")
    return found


def read_labels(view: View) -> tuple[dict[str, str], dict[str, str], str | None]:
    """The labels and annotations under `view` that are the user's own, and the queue that an annotation names."""
    annotations = view.labels("annotations")
    queue = annotations.pop(_QUEUE, None)
    if queue:
        view.account.kept(view.at("annotations", _QUEUE), "spec.queue")
    return (
        _own(view.labels("labels"), view, "labels"),
        _own(annotations, view, "annotations"),
        queue,
    )


def _name(view: View) -> str:
    name = view.text("name")
    if name and _NAME.fullmatch(name) and len(name) <= _LONGEST_NAME:
        view.any("name", to="metadata.name")
        return name
    key = "name" if name else "generateName"
    given = name or view.text("generateName") or refuse(view.at("name"), "is missing", "a name for the job")
    stem = re.sub(r"[^a-z0-9]+", "-", given.lower()).strip("-")
    new = (stem if stem[:1].isalpha() else f"job-{stem}")[:_LONGEST_NAME].strip("-")
    view.changed(key, "metadata.name", f"is {new} now: it has to be a DNS label, and each run adds an end of its own")
    return new


def _own(found: dict[str, str], view: View, key: str) -> dict[str, str]:
    own = {}
    for name, value in found.items():
        if told := reserved(key, name):
            view.account.lost(view.at(key, name), *told)
        else:
            view.account.kept(view.at(key, name), f"metadata.{key}")
            own[name] = value
    return own


def reserved(key: str, name: str) -> tuple[str, str] | None:
    """Why a label or an annotation (`key` says which) of that name is not taken over, and what to do; None: it is."""
    if name in _SAID_OTHERWISE:
        return _SAID_OTHERWISE[name]
    if name.startswith(_KUEUE):
        return "Kueue does not admit Volcano Jobs", "name a queue of Volcano's in spec.queue"
    if name == _KUBECTL or name.startswith(_OPERATOR):
        return "is set by others", "leave it out"
    taken = names.is_reserved_label(name) if key == "labels" else names.is_reserved_annotation(name)
    return ("kfp-volcano or Volcano sets those that begin so", "a name of your own") if taken else None
