# SPDX-License-Identifier: Apache-2.0
"""The Volcano Job of a TrainingJob, and the objects that it needs beside it.

One Job, three tasks where it is elastic: `coordinator` and `core` are the gang, `elastic` is the surplus, and a resize
changes nothing but `elastic.replicas`. What Volcano does with this shape, and why it has to be so: DESIGN.md, "The
Volcano Job".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas import names, records
from kfp_volcano.schemas.training_job import Replicas, Role
from kfp_volcano.schemas.wire import spec_text, text_hash
from kfp_volcano.volcano.manifests import frameworks, policies
from kfp_volcano.volcano.manifests.devices import claim_template
from kfp_volcano.volcano.manifests.placement import combined
from kfp_volcano.volcano.manifests.pods import claim_name, joint_devices, pod_template
from kfp_volcano.volcano.manifests.present import present
from kfp_volcano.volcano.manifests.render import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.schemas.pods import Topology
    from kfp_volcano.schemas.training_job import TrainingJob

__all__ = ["job_manifest", "manifests"]

_COORDINATOR_COMMAND = ("python", "-m", "kfp_volcano.elastic.autoscaler.coordinator")
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """One task of the Job: what the template says of it."""

    name: str
    role: Role
    """The role it belongs to, whose name its container has."""
    replicas: int
    min_available: int
    largest: int
    """The most replicas it may ever have."""
    max_retry: int
    depends_on: tuple[str, ...] = ()
    """Other tasks."""
    policies: tuple[policies.Policy, ...] = ()
    numa: str | None = None


def manifests(job: TrainingJob, *, name: str, run_id: str, step: str, workers: int) -> list[dict[str, Any]]:
    """All objects of a training, the Job last.

    As `job_manifest`, with the ResourceClaimTemplates that the Job's pods refer to, labelled as the Job is.
    """
    manifest = job_manifest(job, name=name, run_id=run_id, step=step, workers=workers)
    claims = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {
                "name": claim_name(name, role),
                "namespace": job.namespace,
                "labels": dict(manifest["metadata"]["labels"]),
            },
            **claim_template(role.resources, devices),
        }
        for role in job.roles
        if (devices := joint_devices(job, role)) and devices.claimed
    ]
    return [*claims, manifest]


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
        names.INSTANCE_LABEL: name,
        names.MANAGED_LABEL: names.MANAGER,
    }
    text = spec_text(job)
    owner = records.Owner(run_id=run_id, step=step, spec_hash=text_hash(text))
    manifest = render(
        "job.json.j2",
        {
            "name": name,
            "namespace": job.namespace,
            "queue": job.queue,
            "priority": job.priority,
            "min_available": _gang(job, tasks),
            "max_retry": policies.job_retries(job),
            "keep_for": None if job.faults.keep_for_s is None else math.ceil(job.faults.keep_for_s),
            "topology": _topology(job.placement.topology),
            "plugins": frameworks.plugins(job),
            "policies": policies.job_policies(job),
            "tasks": tasks,
        },
    )
    manifest["metadata"]["labels"] = labels
    manifest["metadata"]["annotations"] = {
        **job.annotations,
        names.OWNER: records.dump(owner),
        names.SPEC: text,
    }
    for entry, task in zip(manifest["spec"]["tasks"], tasks, strict=True):
        component = {**labels, "app.kubernetes.io/component": task.name}
        entry["template"] = pod_template(job, task.role, name=name, task=task.name, labels=component)
        if task.name == names.ELASTIC and job.priority:
            entry["template"]["spec"]["priorityClassName"] = names.surplus_priority(job.priority)
    return manifest


def _tasks(job: TrainingJob, workers: int) -> list[_Task]:
    """The Job's tasks; those without which nothing can start come first."""
    worker, replicas = job.workers, job.workers.replicas
    core = _task(job, worker, replicas.min)
    others = [_task(job, role, role.replicas.min) for role in job.roles if role is not worker]
    coordinators, surplus = [], []
    if frameworks.coordinated(job):
        coordinators = [_task(job, _coordinator(job), 1)]
    if job.elastic:
        largest = replicas.max - replicas.min
        surplus = [
            _Task(
                name=names.ELASTIC,
                role=worker,
                replicas=workers - replicas.min,
                min_available=0,
                largest=largest,
                max_retry=policies.task_retries(job, worker, largest),
                depends_on=core.depends_on,
                numa=core.numa,
            )
        ]
    return [*coordinators, core, *surplus, *others]


def _task(job: TrainingJob, role: Role, replicas: int) -> _Task:
    """The task of the gang that holds a role's pods."""
    ends = any(role is each for each in frameworks.succeeding(job))
    return _Task(
        name=frameworks.task_of(job, role),
        role=role,
        replicas=replicas,
        min_available=replicas if role.min is None else role.min,
        largest=replicas,
        max_retry=policies.task_retries(job, role, replicas),
        depends_on=tuple(
            frameworks.task_of(job, each) for name in role.depends_on for each in job.roles if each.name == name
        ),
        policies=(*policies.pending_policies(job), *([policies.COMPLETES] if ends else [])),
        numa=None if role.name == names.COORDINATOR else combined(job.placement, role.placement).numa,
    )


def _coordinator(job: TrainingJob) -> Role:
    coordinator = job.elasticity.coordinator
    return Role(
        name=names.COORDINATOR,
        replicas=Replicas(min=1, max=1, initial=1, sizes=(1,)),
        image=coordinator.image,
        resources=coordinator.resources,
        command=_COORDINATOR_COMMAND,
    )


def _gang(job: TrainingJob, tasks: Sequence[_Task]) -> int:
    """Pods without which nothing starts. Those that wait for others do not exist yet when the gang is scheduled."""
    if job.min_pods is not None:
        return job.min_pods + sum(task.name == names.COORDINATOR for task in tasks)
    return sum(task.min_available for task in tasks if not task.depends_on)


def _topology(topology: Topology | None) -> dict[str, Any] | None:
    if topology is None:
        return None
    return present(mode=topology.mode, highestTierAllowed=topology.tier, highestTierName=topology.tier_name)


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
