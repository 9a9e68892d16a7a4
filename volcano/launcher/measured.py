# SPDX-License-Identifier: Apache-2.0
"""Requests that follow what was measured: advice of a training's earlier Jobs, applied to its next one.

The autoscaler leaves its advice on the Job. A Job is gone soon after its end, so the run's last step keeps the advice
in a ConfigMap of the namespace, one entry for each training's name.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.contracts import read, spec_of
from kfp_volcano.errors import ConflictError, ForbiddenError, NotFoundError
from kfp_volcano.schemas.names import ADVICE, ADVICE_MAP, CORE, ELASTIC, MANAGED_LABEL, MANAGER
from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.schemas.records import Advice, dump
from kfp_volcano.volcano.cluster.annotations import annotation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kfp_volcano.schemas.training_job import Resources, TrainingJob
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["advice_of", "advised_requests", "follow_advice", "keep_advice"]

LEAST, MOST = 0.25, 2.0
"""Of what the spec says: advice beyond is not followed, for a training may not be what it was."""


def advice_of(job: Manifest) -> Advice | None:
    """The advice that stands on a Job: the one that it follows, until its own use is known."""
    return read(Advice, annotation(job, ADVICE))


def follow_advice(cluster: Cluster, job: TrainingJob, manifest: Manifest) -> None:
    """Set the requests of the workers' containers as was advised, where the spec allows it, and note it on the Job."""
    role = job.workers
    if not role.resources.measured:
        return
    found = [each for each in (_kept(cluster, job), *_on_jobs(cluster, job)) if each is not None]
    advice = max(found, key=lambda each: each.at, default=None)
    requests = advised_requests(role.resources, advice) if advice else {}
    if advice is None or not requests:
        return
    for task in manifest["spec"]["tasks"]:
        if task["name"] in {CORE, ELASTIC, role.name}:
            container = task["template"]["spec"]["containers"][0]
            container["resources"] = {
                **container.get("resources", {}),
                "requests": {**container.get("resources", {}).get("requests", {}), **requests},
            }
    manifest["metadata"]["annotations"][ADVICE] = dump(advice)


def advised_requests(resources: Resources, advice: Advice) -> Mapping[str, str]:
    """Requests by resource, as quantities: the advice within what the spec allows."""
    found = {}
    for name, written, wanted in (("cpu", resources.cpu, advice.cpu), ("memory", resources.memory, advice.memory)):
        if wanted is None:
            continue
        least, most = float(quantity(written)) * LEAST, float(quantity(written)) * MOST
        if name in resources.limits:
            most = min(most, float(quantity(resources.limits[name])))
        value = min(max(float(quantity(wanted)), least), most)
        found[name] = f"{round(value * 1000)}m" if name == "cpu" else str(round(value))
    return found


def keep_advice(cluster: Cluster, job: Manifest) -> None:
    """Keep the advice on a Job for its training's next start; nothing where there is none, or it may not be kept."""
    spec, advice = spec_of(job), advice_of(job)
    if spec is None or advice is None:
        return
    with suppress(ForbiddenError, ConflictError):
        _put(cluster, job["metadata"]["namespace"], spec.name, dump(advice))


def _put(cluster: Cluster, namespace: str, name: str, text: str) -> None:
    entry: list[dict[str, Any]] = [{"op": "add", "path": f"/data/{name}", "value": text}]
    try:
        cluster.patch("ConfigMap", ADVICE_MAP, namespace, entry)
    except NotFoundError:
        metadata = {"name": ADVICE_MAP, "namespace": namespace, "labels": {MANAGED_LABEL: MANAGER}}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {name: text}}
        try:
            cluster.create(manifest)
        except ConflictError:  # another run was faster
            cluster.patch("ConfigMap", ADVICE_MAP, namespace, entry)


def _kept(cluster: Cluster, job: TrainingJob) -> Advice | None:
    try:
        kept = cluster.get("ConfigMap", ADVICE_MAP, job.namespace)
    except (NotFoundError, ForbiddenError):
        return None
    return read(Advice, (kept.get("data") or {}).get(job.name))


def _on_jobs(cluster: Cluster, job: TrainingJob) -> Iterable[Advice | None]:
    """Of Jobs of that training that are still there: those that no pipeline runs are concluded by nobody."""
    for each in cluster.list("Job", job.namespace)[0]:
        spec = spec_of(each)
        if spec is not None and spec.name == job.name:
            yield advice_of(each)
