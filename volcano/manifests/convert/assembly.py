# SPDX-License-Identifier: Apache-2.0
"""Roles to a TrainingJob: what all of them say alike is said once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.quantities import duration_text
from kfp_volcano.schemas.wire import API_VERSION, KIND
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.metadata import Metadata
    from kfp_volcano.volcano.manifests.convert.source import Account

__all__ = ["Job", "assemble", "new_job"]


@dataclass(kw_only=True)
class Job:
    """A TrainingJob while it is put together."""

    name: str
    namespace: str | None
    framework: str
    drafts: Sequence[Draft]
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    queue: str | None
    priority: str | None = None
    min_pods: int | None = None
    elasticity: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, Any] = field(default_factory=dict)
    topology: dict[str, Any] = field(default_factory=dict)
    mpi: dict[str, Any] = field(default_factory=dict)


def new_job(metadata: Metadata, framework: str, drafts: Sequence[Draft]) -> Job:
    """A job of a framework, with the queue that an annotation of its manifest names."""
    return Job(
        name=metadata.name,
        namespace=metadata.namespace,
        framework=framework,
        drafts=drafts,
        labels=metadata.labels,
        annotations=metadata.annotations,
        queue=metadata.queue,
    )


def assemble(job: Job, account: Account, *, queue: str) -> dict[str, Any]:
    """The TrainingJob on the wire; `queue` is for a job that names none."""
    if not job.queue:
        account.changed("spec", "spec.queue", f"names no queue of Volcano's: it is {queue}", "name that of your team")
    for draft in job.drafts:
        if "image" not in draft.parts:
            refuse(f"{draft.container}.image", "is missing", "the image of the training container")
        draft.parts = {key: part for key, part in draft.parts.items() if part not in ({}, [])}
        _metadata(job, draft)
        draft.patch.settle(draft, account)
    _priority(job, account)
    _grace(job, account)
    shared = _share(job)
    placement = {**shared.pop("placement", {}), **({"topology": job.topology} if job.topology else {})}
    spec: dict[str, Any] = {
        "framework": job.framework,
        **{key: shared.pop(key) for key in ("image", "command", "args") if key in shared},
        "queue": job.queue or queue,
        "priority": job.priority,
        "minPods": job.min_pods,
        **shared,
        "placement": placement,
        "mpi": job.mpi,
        "roles": {draft.name: _role(draft) for draft in job.drafts},
        "elasticity": job.elasticity,
        "faults": job.faults,
    }
    metadata = {
        "name": job.name,
        "namespace": job.namespace,
        "labels": job.labels,
        "annotations": job.annotations,
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": _without_empty(metadata), "spec": _without_empty(spec)}


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in value.items() if part is not None and part not in ({}, [])}


def _metadata(job: Job, draft: Draft) -> None:
    """Labels and annotations of the pods: the Job's too where all roles have them and the Job says nothing else."""
    for key, common in (("labels", job.labels), ("annotations", job.annotations)):
        for name, value in getattr(draft, key).items():
            if all(getattr(other, key).get(name) == value for other in job.drafts) and common.get(name, value) == value:
                common[name] = value
            else:
                draft.patch.value.setdefault("metadata", {}).setdefault(key, {})[name] = value


def _priority(job: Job, account: Account) -> None:
    """The pods' PriorityClass, where the Job names none: one for all, or by podPatch."""
    classes = {draft.priority for draft in job.drafts}
    if job.priority is None and len(classes) == 1:
        (job.priority,) = classes
    for draft in job.drafts:
        if draft.priority and draft.priority != job.priority:
            draft.patch.value.setdefault("spec", {})["priorityClassName"] = draft.priority
            account.changed(
                draft.priority_path,
                draft.place("podPatch", "spec", "priorityClassName"),
                "roles of different priority: the pods keep theirs, the gang has that of spec.priority",
            )


def _grace(job: Job, account: Account) -> None:
    graces = sorted({max(draft.grace, 1) for draft in job.drafts if draft.grace is not None})
    if graces:
        job.elasticity["grace"] = duration_text(graces[-1])
    if len(graces) > 1:
        account.changed("terminationGracePeriodSeconds", "spec.elasticity.grace", "the longest holds for all roles")


def _share(job: Job) -> dict[str, Any]:
    """What all roles say alike, taken from them; and the most common image, for a spec has to have one."""
    first, *others = job.drafts
    places = [(key,) for key in _WHOLE] + [(key, name) for key in _BY_KEY for name in first.parts.get(key, ())]
    if job.framework != "mpi" and all(_program(other) == _program(first) for other in others):
        # Of MPI's workers, those without a command run sshd.
        places += [("command",), ("args",)]
    shared: dict[str, Any] = {}
    for place in places:
        value = _at(first, place)
        refers = isinstance(value, str) and _REFERENCE.search(value)  # to a variable that a role may have for itself
        if value and not refers and all(_at(other, place) == value for other in others):
            target = shared.setdefault(place[0], {}) if len(place) > 1 else shared
            target[place[-1]] = value
            for draft in job.drafts:
                draft.shared.add(place)
    if "image" not in shared:
        images = [draft.parts["image"] for draft in job.drafts]
        shared["image"] = max(images, key=images.count)
        for draft in job.drafts:
            if draft.parts["image"] == shared["image"]:
                draft.shared.add(("image",))
    return shared


_REFERENCE = re.compile(r"\$\((?!KFP_VOLCANO_)")
_WHOLE = ("image", "envFrom")
_BY_KEY = ("env", "volumes", "pod", "placement")
"""Mappings whose entries a role takes over from the spec one by one."""


def _program(draft: Draft) -> tuple[Any, Any]:
    return draft.parts.get("command"), draft.parts.get("args")


def _at(draft: Draft, place: tuple[str, ...]) -> Any:
    value: Any = draft.parts
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _role(draft: Draft) -> dict[str, Any]:
    own: dict[str, Any] = {key: part for key, part in draft.parts.items() if (key,) not in draft.shared}
    for key in _BY_KEY:
        own[key] = {name: value for name, value in own.get(key, {}).items() if (key, name) not in draft.shared}
    first = ("image", "command", "args", "procs", "resources")
    return _without_empty(
        {
            "replicas": draft.replicas,
            "min": draft.min,
            **{key: own.pop(key) for key in first if key in own},
            **own,
            "podPatch": draft.patch.written(draft.name),
        }
    )
