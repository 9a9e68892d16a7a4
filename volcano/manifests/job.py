"""The Volcano Job of a TrainingJob.

One Job, three tasks where it is elastic: `coordinator` and `core` are the gang, `elastic` is the surplus, and a resize
changes nothing but `elastic.replicas`. What Volcano does with this shape, and why it has to be so: DESIGN.md, "The
Volcano Job".
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas import names, records
from kfp_volcano.schemas.training_job import Replicas, Resources, Role, RuntimeSettings
from kfp_volcano.schemas.wire import spec_hash, spec_text
from kfp_volcano.volcano.manifests.render import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.schemas.pods import Env
    from kfp_volcano.schemas.training_job import TrainingJob

__all__ = ["MOUNT_PATH", "job_manifest"]

MOUNT_PATH = "/kfp-volcano/volume"
"""Where the claim of `checkpoint.volume` is mounted in every pod."""

_COORDINATOR = Role(
    name=names.COORDINATOR,
    replicas=Replicas(min=1, max=1, initial=1, sizes=(1,)),
    resources=Resources(cpu="500m", memory="1Gi"),
    command=("python", "-m", "kfp_volcano.elastic.autoscaler.coordinator"),
)
_CORE_ENDS = {"event": "TaskCompleted", "action": "CompleteJob"}
_DOWNWARD = {
    names.ENV_POD: "metadata.name",
    names.ENV_POD_IP: "status.podIP",
    names.ENV_TASK_INDEX: "metadata.labels['volcano.sh/task-index']",
}
_VOLUME = "checkpoints"
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """One task of the Job: what the template says of it."""

    name: str
    role: str
    """The role it belongs to; also the name of its container."""
    replicas: int
    min_available: int
    largest: int
    """The most replicas it may ever have."""
    max_retry: int
    preemptable: bool
    command: tuple[str, ...]
    env: Env
    resources: Resources
    token: bool = False
    policies: tuple[dict[str, str], ...] = ()
    priority: str | None = None


def job_manifest(job: TrainingJob, *, name: str, run_id: str, step: str, workers: int) -> dict[str, Any]:
    """The Job called `name` that starts with `workers` workers, owned by `step` of the run `run_id`.

    Equal arguments give equal manifests. Raises SpecError where `workers` is outside the spec's min..max, or where
    `name` is too long for the names of its pods.
    """
    tasks = _tasks(job, workers)
    _check(job, name, workers, tasks)
    labels = {
        **job.labels,
        names.RUN_LABEL: names.run_label(run_id),
        "app.kubernetes.io/name": job.name,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": "kfp-volcano",
    }
    owner = records.Owner(run_id=run_id, step=step, spec_hash=spec_hash(job))
    manifest = render(
        "job.yaml.j2",
        {
            "name": name,
            "namespace": job.namespace,
            "labels": labels,
            "annotations": {names.OWNER: records.dump(owner), names.SPEC: spec_text(job)},
            "queue": job.queue,
            "image": job.image,
            "grace": math.ceil(job.elasticity.grace_s),
            "min_available": sum(task.min_available for task in tasks),
            "tasks": [
                {
                    "name": task.name,
                    "replicas": task.replicas,
                    "min_available": task.min_available,
                    "max_retry": task.max_retry,
                    "labels": {**labels, "app.kubernetes.io/component": task.name},
                    "preemptable": str(task.preemptable).lower(),
                    "token": task.token,
                    "container": task.role,
                    "command": task.command,
                    "env": _env(job, name, task),
                    "resources": _resources(task.resources),
                }
                for task in tasks
            ],
        },
    )
    _add_options(manifest["spec"], job, tasks)
    return manifest


def _tasks(job: TrainingJob, workers: int) -> list[_Task]:
    """The Job's tasks; those without which nothing can start come first."""
    worker, replicas = job.workers, job.workers.replicas
    core = _task(job, worker, name=names.CORE, replicas=replicas.min, policies=(_CORE_ENDS,))
    elastic = _task(
        job,
        worker,
        name=names.ELASTIC,
        replicas=workers - replicas.min,
        min_available=0,
        largest=replicas.max - replicas.min,
        preemptable=True,
        priority=job.priority and f"{job.priority}-surplus",
    )
    others = [_task(job, role, name=role.name, replicas=role.replicas.min) for role in job.roles if role is not worker]
    coordinators = [_task(job, _COORDINATOR, name=names.COORDINATOR, replicas=1, token=True)] if _live(job) else []
    return [*coordinators, core, *([elastic] if job.elastic else []), *others]


def _task(job: TrainingJob, role: Role, *, name: str, replicas: int, **differing: Any) -> _Task:
    """A task of the gang, unless what is `differing` says otherwise."""
    largest = differing.get("largest", replicas)
    of_the_gang = {"min_available": replicas, "largest": largest, "preemptable": False}
    return _Task(
        name=name,
        role=role.name,
        replicas=replicas,
        max_retry=job.faults.retries * largest,
        command=role.command or job.command,
        env={**job.env, **role.env},
        resources=role.resources,
        **{**of_the_gang, **differing},
    )


def _live(job: TrainingJob) -> bool:
    return job.elasticity.strategy == "live"


def _check(job: TrainingJob, name: str, workers: int, tasks: Sequence[_Task]) -> None:
    replicas = job.workers.replicas
    problems = []
    if not replicas.min <= workers <= replicas.max:
        problems.append(Problem("workers", f"{workers} is outside min..max", f"from {replicas.min} to {replicas.max}"))
    for task in tasks:
        pod = names.pod_name(name, task.name, task.largest - 1)
        if len(pod) > _LONGEST_NAME:
            problems.append(Problem("name", f"its pod {pod} would have a name of {len(pod)} characters", "at most 63"))
    if problems:
        raise SpecError(problems, source=f"Job {name}")


def _env(job: TrainingJob, name: str, task: _Task) -> list[dict[str, Any]]:
    """The environment of a task's container: ours first, so that the user's may refer to it by $(NAME)."""
    checkpoint = job.checkpoint
    settings = RuntimeSettings(
        batch=job.elasticity.batch.size, grace_s=job.elasticity.grace_s, sharding=job.data.sharding
    )
    if checkpoint:
        settings = replace(settings, checkpoint_every_s=checkpoint.every_s, checkpoint_keep=checkpoint.keep)
    values = {names.ENV_JOB: f"{job.namespace}/{name}", names.ENV_TASK: task.name}
    if _live(job):
        values[names.ENV_COORDINATOR] = names.host_name(name, names.COORDINATOR, 0)
    if checkpoint:
        values[names.ENV_JOB_DIR] = f"{MOUNT_PATH}/{name}"
    values[names.ENV_ELASTICITY] = json.dumps(asdict(settings), separators=(",", ":"))
    return [
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": field}}} for key, field in _DOWNWARD.items()),
        *({"name": key, "value": value} for key, value in values.items()),
        *({"name": key, "value": value} for key, value in task.env.items()),
    ]


def _resources(resources: Resources) -> dict[str, Any]:
    gpus = {names.GPU: str(resources.gpu)} if resources.gpu else {}
    requests = {"cpu": resources.cpu, "memory": resources.memory, **gpus}
    # Kubernetes wants an extended resource's limit to equal its request; cpu and memory may be used beyond it.
    return {"requests": requests, "limits": gpus} if gpus else {"requests": requests}


def _add_options(spec: dict[str, Any], job: TrainingJob, tasks: Sequence[_Task]) -> None:
    """Add the parts that not every Job has."""
    if job.priority:
        spec["priorityClassName"] = job.priority
    if job.faults.keep_for_s is not None:
        spec["ttlSecondsAfterFinished"] = math.ceil(job.faults.keep_for_s)
    for entry, task in zip(spec["tasks"], tasks, strict=True):
        if task.policies:
            entry["policies"] = [dict(policy) for policy in task.policies]
        pod = entry["template"]["spec"]
        if task.priority:
            pod["priorityClassName"] = task.priority
        if job.checkpoint:
            pod["containers"][0]["volumeMounts"] = [{"name": _VOLUME, "mountPath": MOUNT_PATH}]
            pod["volumes"] = [{"name": _VOLUME, "persistentVolumeClaim": {"claimName": job.checkpoint.volume}}]
