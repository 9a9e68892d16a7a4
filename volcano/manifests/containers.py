# SPDX-License-Identifier: Apache-2.0
"""The container that trains, and those that come before it."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.codec import plain
from kfp_volcano.schemas.monitor import Monitor
from kfp_volcano.schemas.pods import EnvReference
from kfp_volcano.schemas.training_job import RuntimeSettings
from kfp_volcano.volcano.manifests import frameworks, scripts
from kfp_volcano.volcano.manifests.devices import container_resources
from kfp_volcano.volcano.manifests.present import present

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.schemas.pods import Devices, EnvSource, Pod, Preflight, Volume
    from kfp_volcano.schemas.training_job import Agent, Resources, Role, TrainingJob

__all__ = ["agent_container", "preflight_container", "training_container"]

_PACKING = ("python", "-m", "kfp_volcano.elastic.agent.packing")
_DOWNWARD = {
    names.ENV_POD: "metadata.name",
    names.ENV_POD_IP: "status.podIP",
    names.ENV_TASK_INDEX: "metadata.labels['volcano.sh/task-index']",
    names.ENV_NODE: "spec.nodeName",
}
_AGENT_MOUNT = {"name": names.AGENT_VOLUME, "mountPath": names.AGENT_PATH}
_POLICIES_MOUNT = {"name": names.POLICIES_VOLUME, "mountPath": names.POLICIES_PATH, "readOnly": True}
_SHARED = ("env", "envFrom", "imagePullPolicy", "resources", "securityContext", "volumeMounts")
"""What the preflight has in common with training."""


def training_container(
    job: TrainingJob,
    role: Role,
    *,
    name: str,
    task: str,
    identity: Pod,
    devices: Devices | None,
    volumes: Sequence[Volume],
) -> dict[str, Any]:
    """The container of a role in a task of the Job called `name`, with `volumes` beside those that the spec implies."""
    ours = task == names.COORDINATOR
    command, arguments = (role.command, ()) if ours else frameworks.command(job, role)
    mounts = [
        *([{"name": names.CHECKPOINTS_VOLUME, "mountPath": names.MOUNT_PATH}] if job.checkpoint else []),
        *([{"name": names.SHM_VOLUME, "mountPath": "/dev/shm"}] if role.resources.shm else []),  # noqa: S108  # a pod's own
        *([_POLICIES_MOUNT] if ours else []),
        *([_AGENT_MOUNT] if not ours and frameworks.copied_agent(job, role) else []),
        *map(_mount, volumes),
    ]
    return present(
        name=role.name,
        image=role.image or job.image,
        imagePullPolicy=identity.image_pull_policy,
        command=list(command),
        args=list(arguments),
        env=_env(job, role, name, task),
        envFrom=[] if ours else [_source(each) for each in (*job.env_from, *role.env_from)],
        resources=container_resources(role.resources, devices),
        securityContext=_security(identity, role.resources),
        volumeMounts=mounts,
    )


def _env(job: TrainingJob, role: Role, name: str, task: str) -> list[dict[str, Any]]:
    """The environment of a container: ours first, so that the user's may refer to it by $(NAME)."""
    values: dict[str, str] = {
        names.ENV_JOB: f"{job.namespace}/{name}",
        names.ENV_TASK: task,
        names.ENV_ROLE: role.name,
        names.ENV_FRAMEWORK: job.framework,
        names.ENV_PROCS: str(role.processes),
    }
    if frameworks.coordinated(job):
        values[names.ENV_COORDINATOR] = names.host_name(name, names.COORDINATOR, 0)
    if job.checkpoint:
        values[names.ENV_JOB_DIR] = f"{names.MOUNT_PATH}/{name}"
    values[names.ENV_ELASTICITY] = _settings(job, name)
    if task == names.COORDINATOR:
        values[names.ENV_POLICIES] = names.POLICIES_PATH
    values |= frameworks.environment(job, role, name)
    return [
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": field}}} for key, field in _DOWNWARD.items()),
        *({"name": key, **_value(value)} for key, value in {**values, **job.env, **role.env}.items()),
    ]


_DEFAULTS = RuntimeSettings()
_SILENT = (
    "scaling",
    "workers",
    "monitor",
    "checkpoint_url",
    "checkpoint_best",
    "checkpoint_best_mode",
    "checkpoint_from",
    "hang_s",
    "straggler_factor",
    "straggler_window",
    "straggler_then",
)
"""Settings that are written only where they say something."""


def _settings(job: TrainingJob, name: str) -> str:
    settings = RuntimeSettings(
        batch=job.elasticity.batch.size,
        scaling=replace(job.elasticity.batch, size=None),
        workers=None if job.elasticity.batch.rule == "constant" else job.workers.replicas.max,
        grace_s=job.elasticity.grace_s,
        monitor=job.monitor or Monitor(),
        sharding=job.data.sharding,
        hang_s=job.faults.hang_s,
    )
    if job.checkpoint:
        settings = replace(
            settings,
            checkpoint_every_s=job.checkpoint.every_s,
            checkpoint_keep=job.checkpoint.keep,
            checkpoint_url=f"{job.checkpoint.url.rstrip('/')}/{job.namespace}/{name}" if job.checkpoint.url else None,
            checkpoint_best=job.checkpoint.best,
            checkpoint_best_mode=job.checkpoint.best_mode or settings.checkpoint_best_mode,
            checkpoint_from=job.checkpoint.start,
        )
    if slow := job.faults.straggler:
        settings = replace(
            settings, straggler_factor=slow.factor, straggler_window=slow.window, straggler_then=slow.then
        )
    values = {each.name: getattr(settings, each.name) for each in fields(settings)}
    plainly = {
        name: plain(value) if is_dataclass(value) else value
        for name, value in values.items()
        if name not in _SILENT or value != getattr(_DEFAULTS, name)
    }
    return json.dumps(plainly, separators=(",", ":"))


def _value(value: str | EnvReference) -> dict[str, Any]:
    if not isinstance(value, EnvReference):
        return {"value": value}
    match value.source:
        case "fieldRef":
            reference: dict[str, Any] = {"fieldPath": value.key}
        case "resourceFieldRef":
            reference = {"resource": value.key}
        case _:
            reference = present(name=value.name, key=value.key, optional=value.optional)
    return {"valueFrom": {value.source: reference}}


def _source(source: EnvSource) -> dict[str, Any]:
    return {**present(prefix=source.prefix), source.source: present(name=source.name, optional=source.optional)}


def _security(identity: Pod, resources: Resources) -> dict[str, Any]:
    """The container's security context; RDMA pins memory, for which it needs a right."""
    context = dict(identity.container_security_context)
    if resources.rdma:
        capabilities = dict(context.get("capabilities") or {})
        added = [each for each in capabilities.get("add") or () if each != "IPC_LOCK"]
        context["capabilities"] = {**capabilities, "add": [*added, "IPC_LOCK"]}
    return context


def preflight_container(preflight: Preflight, container: dict[str, Any]) -> dict[str, Any]:
    """An init container that examines what the training `container` will have; its last words become its message."""
    return {
        "name": names.PREFLIGHT,
        "image": preflight.image or container["image"],
        "command": list(scripts.examined(preflight)),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **{key: container[key] for key in _SHARED if key in container},
    }


def agent_container(agent: Agent, container: dict[str, Any]) -> dict[str, Any]:
    """An init container that puts the agent where the training `container` starts it from.

    It asks for the same resources: each container of a pod has to, for its quality of service and NUMA policy.
    """
    return {
        "name": names.AGENT_VOLUME,
        "image": agent.image,
        "command": [*_PACKING, f"{names.AGENT_PATH}/{names.AGENT_FILE}"],
        **{key: container[key] for key in ("imagePullPolicy", "resources", "securityContext") if key in container},
        "volumeMounts": [_AGENT_MOUNT],
    }


def _mount(volume: Volume) -> dict[str, Any]:
    mount = {"name": volume.name, "mountPath": volume.mount}
    return {**mount, **present(subPath=volume.sub_path, readOnly=volume.read_only)}
