# SPDX-License-Identifier: Apache-2.0
"""The pod template of a role: one container that trains, and what it stands in."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.patch import strategic_merge
from kfp_volcano.schemas.quantities import quantity_text
from kfp_volcano.volcano.manifests import frameworks
from kfp_volcano.volcano.manifests.containers import agent_container, preflight_container, training_container
from kfp_volcano.volcano.manifests.devices import CLAIM
from kfp_volcano.volcano.manifests.placement import combined, pod_placement
from kfp_volcano.volcano.manifests.present import present

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kfp_volcano.schemas.pods import Devices, Pod, Volume
    from kfp_volcano.schemas.training_job import Resources, Role, TrainingJob

__all__ = ["claim_name", "joint_devices", "pod_template"]

_NO_SIDECAR = {"sidecar.istio.io/inject": "false"}
"""In the namespaces of Kubeflow profiles Istio puts a proxy into each pod, which encrypts and slows what workers send
each other, and keeps a pod from completing. Istio reads the label, older versions the annotation; a spec may say
otherwise."""

_POLICIES = {"name": names.POLICIES_VOLUME, "configMap": {"name": names.POLICIES_CONFIG, "optional": True}}


def pod_template(job: TrainingJob, role: Role, *, name: str, task: str, labels: dict[str, str]) -> dict[str, Any]:
    """The template of a task's pods in the Job called `name`; `role` may be the coordinator's, which is no role."""
    ours = task == names.COORDINATOR
    identity = job.pod if ours else _combined(job.pod, role.pod)
    placement = replace(job.placement, nodes={}, node_selector={}, affinity={}, devices=None) if ours else None
    placement = placement or combined(job.placement, role.placement)
    devices = None if ours else joint_devices(job, role)
    needs_devices = role.resources.gpu > 0 or role.resources.rdma > 0
    volumes = [] if ours else [*_merged_volumes(job.volumes, role.volumes)]
    container = training_container(job, role, name=name, task=task, identity=identity, devices=devices, volumes=volumes)
    preflight = job.faults.preflight if not ours and frameworks.examined(job, role) else None
    agent = None if ours else frameworks.copied_agent(job, role)
    spec = {
        "restartPolicy": "Never" if _never_again(job) else "OnFailure",
        "terminationGracePeriodSeconds": frameworks.grace_s(job, role),
        "automountServiceAccountToken": ours or bool(identity.token),
        **present(
            activeDeadlineSeconds=_deadline(job),
            serviceAccountName=job.elasticity.coordinator.service_account if ours else identity.service_account,
            imagePullSecrets=[{"name": each} for each in identity.image_pull_secrets],
            securityContext=identity.security_context,
            **pod_placement(placement, devices=needs_devices or preflight is not None),
            initContainers=[
                *([preflight_container(preflight, container)] if preflight else []),
                *([agent_container(agent, container)] if agent else []),
            ],
            containers=[container],
            resourceClaims=_claims(devices, name, role),
            volumes=[
                *_volumes(job, role.resources, volumes),
                *([_POLICIES] if ours else []),
                *([{"name": names.AGENT_VOLUME, "emptyDir": {}}] if agent else []),
            ],
        ),
    }
    metadata = {
        "labels": {**_NO_SIDECAR, **labels},
        "annotations": {
            **_NO_SIDECAR,
            **job.annotations,
            "volcano.sh/preemptable": "true" if task == names.ELASTIC else "false",
        },
    }
    template = {"metadata": metadata, "spec": spec}
    for patch in () if ours else (job.pod_patch, role.pod_patch):
        template = strategic_merge(template, patch) if patch else template
    return template


def joint_devices(job: TrainingJob, role: Role) -> Devices | None:
    """The devices that a role's pods get jointly: as the role says, or the spec if the role asks for all of them."""
    asked = {"gpu": role.resources.gpu, "rdma": role.resources.rdma}
    devices = role.placement.devices or job.placement.devices
    return devices if devices and all(asked[kind] for kind in devices.joint) else None


def claim_name(name: str, role: Role) -> str:
    """The ResourceClaimTemplate of a role of the Job called `name`."""
    return f"{name}-{role.name}-{CLAIM}"


def _never_again(job: TrainingJob) -> bool:
    """Whether a program that failed is not started again in its pod: a Job of fixed size that says so."""
    return job.faults.failed != "retry" and not frameworks.coordinated(job)


def _deadline(job: TrainingJob) -> int | None:
    """A pod's own time limit, where pods that fail end the Job: nobody has to be there for that.

    Elsewhere they would begin anew; the autoscaler and whoever follows the Job keep its time.
    """
    timeout = job.faults.timeout_s
    ends = "fail" in (job.faults.failed, job.faults.evicted) or job.faults.evicted == "replace"
    ends = ends and not frameworks.coordinated(job)
    return math.ceil(timeout) if timeout is not None and ends else None


def _combined(spec: Pod, role: Pod) -> Pod:
    """What a role says of its pods wins over the spec, key by key."""
    said = {key: value for key in spec.__slots__ if (value := getattr(role, key)) is not None and value not in ((), {})}
    return replace(spec, **said)


def _claims(devices: Devices | None, name: str, role: Role) -> list[dict[str, str]]:
    if devices is None or not devices.claimed:
        return []
    return [{"name": CLAIM, "resourceClaimTemplateName": claim_name(name, role)}]


def _merged_volumes(spec: Iterable[Volume], role: Iterable[Volume]) -> list[Volume]:
    return [*{each.name: each for each in (*spec, *role)}.values()]


def _volumes(job: TrainingJob, resources: Resources, volumes: Sequence[Volume]) -> list[dict[str, Any]]:
    ours: list[dict[str, Any]] = []
    if job.checkpoint:
        ours.append({"name": names.CHECKPOINTS_VOLUME, "persistentVolumeClaim": {"claimName": job.checkpoint.volume}})
    if resources.shm:
        ours.append({"name": names.SHM_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": resources.shm}})
    return [*ours, *({"name": volume.name, **_volume_source(volume)} for volume in volumes)]


def _volume_source(volume: Volume) -> dict[str, Any]:
    if volume.claim is not None:
        return {"persistentVolumeClaim": {"claimName": volume.claim}}
    if volume.empty_dir is not None:
        size = volume.empty_dir.get("size")
        limit = None if size is None else quantity_text(size)
        return {"emptyDir": present(medium=volume.empty_dir.get("medium"), sizeLimit=limit)}
    if volume.host_path is not None:
        return {"hostPath": dict(volume.host_path)}
    if volume.config_map is not None:
        return {"configMap": {"name": volume.config_map["name"], **_files(volume.config_map)}}
    source = volume.secret or {}
    return {"secret": {"secretName": source["name"], **_files(source)}}


def _files(source: dict[str, Any]) -> dict[str, Any]:
    return present(
        items=[{"key": key, "path": path} for key, path in source.get("items", {}).items()],
        defaultMode=int(source["mode"]) if "mode" in source else None,
        optional=source.get("optional"),
    )
