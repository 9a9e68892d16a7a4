# SPDX-License-Identifier: Apache-2.0
"""What a person wants to see of a run at a glance, taken from the cluster's objects. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.schemas.names import GPU, PROGRESS, REQUEST, RESIZE, RUN_LABEL, STEPS, TEAM_LABEL, run_label
from kfp_volcano.schemas.records import Progress, ResizeOutcome, ResizeRequest, StepRecord, parse, parse_list
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.launcher.waiting import explain_wait
from kfp_volcano.volcano.manifests.status import job_state
from kfp_volcano.volcano.model.objects import has_ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["JobRow", "Overview", "overview"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One Job of the queue."""

    job: str
    team: str
    state: str
    gpus: int
    """GPUs its pods hold, those of pods that are ending included."""
    workers: int
    """Pods with GPUs that run."""
    waits: str | None
    """Why it waits, in the scheduler's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A run and its queue at one moment."""

    run_job: str | None
    queue: str
    gpus: int
    """GPUs of all nodes."""
    rows: tuple[JobRow, ...] = ()
    progress: Progress | None = None
    request: ResizeRequest | None = None
    resizes: tuple[ResizeOutcome, ...] = ()
    steps: tuple[StepRecord, ...] = ()

    @property
    def free(self) -> int:
        """GPUs nobody holds."""
        return self.gpus - sum(row.gpus for row in self.rows)


def overview(objects: Mapping[str, Sequence[Manifest]], *, run_id: str, queue: str) -> Overview:
    """Build the overview of a run from the objects of kinds Job, PodGroup, Pod and Node."""
    label = run_label(run_id)
    mine = next((job for job in objects["Job"] if (job["metadata"].get("labels") or {}).get(RUN_LABEL) == label), None)
    queue = mine["spec"].get("queue", queue) if mine else queue
    gpus = sum(int(node["status"]["allocatable"].get(GPU, 0)) for node in objects["Node"])
    rows = tuple(
        _row(job, objects["Pod"], objects["PodGroup"]) for job in objects["Job"] if job["spec"].get("queue") == queue
    )
    if mine is None:
        return Overview(run_job=None, queue=queue, gpus=gpus, rows=rows)
    progress, request = annotation(mine, PROGRESS), annotation(mine, REQUEST)
    return Overview(
        run_job=_key(mine),
        queue=queue,
        gpus=gpus,
        rows=rows,
        progress=parse(Progress, progress) if progress else None,
        request=parse(ResizeRequest, request) if request else None,
        resizes=tuple(parse_list(ResizeOutcome, annotation(mine, RESIZE))),
        steps=tuple(parse_list(StepRecord, annotation(mine, STEPS))),
    )


def _key(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def _row(job: Manifest, pods: Iterable[Manifest], groups: Iterable[Manifest]) -> JobRow:
    metadata = job["metadata"]
    held = [
        (pod, _gpus(pod))
        for pod in pods
        if pod["metadata"].get("namespace") == metadata["namespace"]
        and (pod["metadata"].get("labels") or {}).get("volcano.sh/job-name") == metadata["name"]
        and pod["spec"].get("nodeName")
        and not has_ended(pod)
    ]
    group = f"{metadata['name']}-{metadata['uid']}"
    podgroup = next((g for g in groups if g["metadata"]["name"] == group), None)
    return JobRow(
        job=_key(job),
        team=(metadata.get("labels") or {}).get(TEAM_LABEL, metadata["namespace"]),
        state=job_state(job).value,
        gpus=sum(gpus for _, gpus in held),
        workers=sum(1 for pod, gpus in held if gpus and pod.get("status", {}).get("phase") == "Running"),
        waits=explain_wait(podgroup),
    )


def _gpus(pod: Manifest) -> int:
    return sum(
        int((container.get("resources", {}).get("requests") or {}).get(GPU, 0))
        for container in pod["spec"]["containers"]
    )
