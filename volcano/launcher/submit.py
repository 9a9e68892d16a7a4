# SPDX-License-Identifier: Apache-2.0
"""Create a run's Job, once."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.contracts import read
from kfp_volcano.elastic.autoscaler.moving import release_expired
from kfp_volcano.elastic.autoscaler.observing.observation import observe
from kfp_volcano.errors import ConflictError, ForbiddenError, NotFoundError, Problem, SpecError
from kfp_volcano.schemas.names import ENV_CLUSTER, OWNER, job_name
from kfp_volcano.schemas.records import Owner, parse
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.launcher.coordinator_account import give_account
from kfp_volcano.volcano.launcher.measured import follow_advice
from kfp_volcano.volcano.manifests.devices import whole_gpus
from kfp_volcano.volcano.manifests.job import manifests
from kfp_volcano.volcano.model.objects import reference_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["submit", "training_name"]


def submit(
    cluster: Cluster,
    job: TrainingJob,
    *,
    run_id: str,
    step: str,
    now: float,
    part: Sequence[str] = (),
    folder: str = "",
    owner: Manifest | None = None,
) -> Manifest:
    """Create the Volcano Job of a TrainingJob, or adopt the one that this run and spec created before.

    Args:
        cluster: Where to.
        job: The training.
        run_id: The pipeline run's id; with the spec's name and `part` it names the Job.
        step: The DAG step that submits, for the owner record.
        now: Unix seconds.
        part: What tells this training from the run's others: equal for each attempt.
        folder: The folder the command runs in, on the embedded cluster.
        owner: The owner reference of what the Job goes with (`step_pod.run_of`).

    Returns:
        The Job as the cluster has it.

    Raises:
        SpecError: The cluster cannot run it: an unknown queue or priority class, a gang larger than the cluster, a
            missing program.
        ConflictError: A Job of that name belongs to another run or was made from another spec.
    """
    name = training_name(job.name, run_id, part)
    release_expired(cluster, now)
    *claims, manifest = manifests(job, name=name, run_id=run_id, step=step, workers=job.workers.replicas.min)
    _set_folder(manifest, folder)
    try:
        created = _adopt(cluster.get("Job", name, job.namespace), manifest)
    except NotFoundError:
        refusals = cluster.preflight(manifest)
        if refusals:
            # Several tasks of the Job may come from one place of the spec.
            problems = dict.fromkeys(Problem(_place(path), what, remedy) for path, what, remedy in refusals)
            raise SpecError(list(problems), source=f"TrainingJob {job.name}") from None
        workers = affordable_workers(cluster, job, now)
        *_, manifest = manifests(job, name=name, run_id=run_id, step=step, workers=workers)
        _set_folder(manifest, folder)
        give_account(cluster, job.namespace, manifest["spec"]["tasks"])
        follow_advice(cluster, job, manifest)
        if owner:
            manifest["metadata"]["ownerReferences"] = [owner]
        created = _create_or_adopt(cluster, manifest)
    for claim in claims:
        _create_for(cluster, created, claim)
    return created


def training_name(name: str, run_id: str, part: Sequence[str]) -> str:
    """The name of the Job in a run of a training whose spec has that name."""
    return job_name(name, json.dumps([run_id, *part]))


def affordable_workers(cluster: Cluster, job: TrainingJob, now: float) -> int:
    """How many workers to start with: the largest size up to the wished one that fits into what is free.

    Who may not see what is free starts with the fewest; the autoscaler adds what fits.
    """
    replicas = job.workers.replicas
    if replicas.fixed or not job.elastic:
        return replicas.max
    try:
        objects = {kind: cluster.list(kind)[0] for kind in ("Queue", "PodGroup", "Job", "Pod", "Node")}
    except ForbiddenError:
        return replicas.min
    # What is free is told by queues, nodes and pods: other queues' Jobs need not be understood.
    objects["Job"] = [each for each in objects["Job"] if each["spec"].get("queue") == job.queue]
    snapshot = observe(objects, queue=job.queue, now=now)
    gpus = whole_gpus(job.workers.resources)  # shares of GPUs that are free are not known here
    room = snapshot.free_gpus // gpus if gpus else replicas.initial
    sizes = [size for size in (replicas.min, *replicas.sizes) if size <= min(replicas.initial, room)]
    return max(sizes, default=replicas.min)


def _create_or_adopt(cluster: Cluster, manifest: Manifest) -> Manifest:
    try:
        return cluster.create(manifest)
    except ConflictError:
        metadata = manifest["metadata"]
        return _adopt(cluster.get("Job", metadata["name"], metadata["namespace"]), manifest)


def _create_for(cluster: Cluster, job: Manifest, manifest: Manifest) -> None:
    """Create what the Job's pods wait for, unless an earlier attempt has: it is the Job's, and goes with it.

    After the Job, so that nothing is left behind whatever happens between the two.
    """
    with suppress(ConflictError):
        cluster.create({**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference_to(job)]}})


def _adopt(existing: Manifest, wanted: Manifest) -> Manifest:
    name = f"{existing['metadata']['namespace']}/{existing['metadata']['name']}"
    owner, ours = read(Owner, annotation(existing, OWNER)), parse(Owner, annotation(wanted, OWNER) or "{}")
    if owner is None:
        raise ConflictError(f"Job {name} exists and was not created by kfp-volcano: delete it, or rename the spec")
    if owner.run_id != ours.run_id:
        raise ConflictError(f"Job {name} belongs to run {owner.run_id}: choose another name for the spec")
    if owner.spec_hash != ours.spec_hash:
        raise ConflictError(f"Job {name} of this run was created from another spec: start a new run")
    return existing


def _place(path: str) -> str:
    """Where in the TrainingJob a place of the Job comes from."""
    if path.endswith(".command"):
        return "spec.command"
    if ".volumes[" in path:
        return "spec.checkpoint.volume"
    if path.endswith(".template.spec.priorityClassName"):
        return "podPatch.spec.priorityClassName"
    places = {"spec.minAvailable": "spec.roles.worker.replicas", "spec.priorityClassName": "spec.priority"}
    return places.get(path, path)


def _set_folder(manifest: Manifest, folder: str) -> None:
    """Where commands run on this machine; elsewhere the image decides."""
    if not folder or not os.environ.get(ENV_CLUSTER, "").startswith("embedded:"):
        return
    for task in manifest["spec"]["tasks"]:
        for container in task["template"]["spec"]["containers"]:
            container["workingDir"] = folder
