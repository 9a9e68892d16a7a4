"""The TrainingJob's form on the wire: from a checked mapping to the type, and back to one canonical mapping."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.quantities import duration, duration_text, quantity_text
from kfp_volcano.schemas.training_job import (
    Batch,
    Checkpoint,
    Data,
    Elasticity,
    Faults,
    Replicas,
    Resources,
    Role,
    Strategy,
    TrainingJob,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["API_VERSION", "FOREVER", "KIND", "build", "default_strategy", "spec_hash", "spec_text", "to_wire"]

API_VERSION = "kfp-volcano/v1"
KIND = "TrainingJob"
FOREVER = "forever"
"""`faults.keepFor` of a Job object that is never removed."""


def build(value: Mapping[str, Any]) -> TrainingJob:
    """The TrainingJob in a mapping that `validation` found nothing wrong with."""
    metadata, spec = value["metadata"], value["spec"]
    framework = spec["framework"]
    return TrainingJob(
        name=metadata["name"],
        namespace=metadata.get("namespace", "default"),
        labels=dict(metadata.get("labels", {})),
        framework=framework,
        image=spec["image"],
        command=tuple(spec["command"]),
        queue=spec["queue"],
        priority=spec.get("priority"),
        env=dict(spec.get("env", {})),
        roles=_roles(spec["roles"]),
        elasticity=_elasticity(spec.get("elasticity", {}), framework),
        data=Data(**spec.get("data", {})),
        checkpoint=_checkpoint(spec["checkpoint"]) if "checkpoint" in spec else None,
        faults=_faults(spec.get("faults", {})),
    )


def _roles(value: Mapping[str, Any]) -> tuple[Role, ...]:
    """The roles in one order whatever the order they were written in: worker, then the others by name."""
    return tuple(_role(name, value[name]) for name in sorted(value, key=lambda name: (name != "worker", name)))


def _role(name: str, role: Mapping[str, Any]) -> Role:
    asked, default = role.get("resources", {}), Resources()
    return Role(
        name=name,
        replicas=_replicas(role["replicas"]),
        resources=Resources(
            cpu=quantity_text(asked.get("cpu", default.cpu)),
            memory=quantity_text(asked.get("memory", default.memory)),
            gpu=int(asked.get("gpu", default.gpu)),
        ),
        command=tuple(role.get("command", ())),
        env=dict(role.get("env", {})),
    )


def _replicas(value: float | Mapping[str, Any]) -> Replicas:
    if isinstance(value, int | float):
        number = int(value)
        return Replicas(min=number, max=number, initial=number, sizes=(number,))
    least, most = int(value["min"]), int(value["max"])
    sizes = tuple(sorted(int(size) for size in value.get("sizes", range(least, most + 1))))
    return Replicas(min=least, max=most, initial=int(value.get("initial", sizes[-1])), sizes=sizes)


def _elasticity(value: Mapping[str, Any], framework: str) -> Elasticity:
    batch, default = value.get("batch", {}), Elasticity()
    size = batch.get("global")
    return Elasticity(
        strategy=value.get("strategy", default_strategy(framework)),
        batch=Batch(size=None if size is None else int(size), rule=batch.get("rule", default.batch.rule)),
        cooldown_s=duration(value.get("cooldown", default.cooldown_s)),
        grace_s=duration(value.get("grace", default.grace_s)),
    )


def default_strategy(framework: str) -> Strategy:
    """The strategy of a spec that names none: only PyTorch code can use the live runtime."""
    return "live" if framework == "pytorch" else "fixed"


def _checkpoint(value: Mapping[str, Any]) -> Checkpoint:
    default = Checkpoint(volume=value["volume"])
    return Checkpoint(
        volume=value["volume"],
        every_s=duration(value.get("every", default.every_s)),
        keep=int(value.get("keep", default.keep)),
    )


def _faults(value: Mapping[str, Any]) -> Faults:
    default = Faults()
    keep_for = value.get("keepFor", default.keep_for_s)
    return Faults(
        retries=int(value.get("retries", default.retries)),
        timeout_s=duration(value["timeout"]) if "timeout" in value else default.timeout_s,
        keep_for_s=None if keep_for == FOREVER else duration(keep_for),
    )


def to_wire(job: TrainingJob) -> dict[str, Any]:
    """The canonical mapping of a TrainingJob: `training_job(to_wire(job)) == job`, equal jobs give equal mappings."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": job.name, "namespace": job.namespace, **_present(labels=dict(sorted(job.labels.items())))},
        "spec": {
            "framework": job.framework,
            "image": job.image,
            "command": list(job.command),
            "queue": job.queue,
            **_present(priority=job.priority, env=dict(sorted(job.env.items()))),
            "roles": {role.name: _role_wire(role) for role in job.roles},
            "elasticity": {
                "strategy": job.elasticity.strategy,
                "batch": {**_present(**{"global": job.elasticity.batch.size}), "rule": job.elasticity.batch.rule},
                "cooldown": duration_text(job.elasticity.cooldown_s),
                "grace": duration_text(job.elasticity.grace_s),
            },
            "data": {"sharding": job.data.sharding},
            **_present(checkpoint=_checkpoint_wire(job.checkpoint) if job.checkpoint else None),
            "faults": _faults_wire(job.faults),
        },
    }


def _role_wire(role: Role) -> dict[str, Any]:
    return {
        "replicas": _replicas_wire(role.replicas),
        "resources": {"cpu": role.resources.cpu, "memory": role.resources.memory, "gpu": role.resources.gpu},
        **_present(command=list(role.command), env=dict(sorted(role.env.items()))),
    }


def _replicas_wire(replicas: Replicas) -> int | dict[str, Any]:
    if replicas.fixed:
        return replicas.min
    every = tuple(range(replicas.min, replicas.max + 1))
    sizes = [] if replicas.sizes == every else list(replicas.sizes)
    return {"min": replicas.min, "max": replicas.max, "initial": replicas.initial, **_present(sizes=sizes)}


def _checkpoint_wire(checkpoint: Checkpoint) -> dict[str, Any]:
    return {"volume": checkpoint.volume, "every": duration_text(checkpoint.every_s), "keep": checkpoint.keep}


def _faults_wire(faults: Faults) -> dict[str, Any]:
    return {
        "retries": faults.retries,
        **_present(timeout=None if faults.timeout_s is None else duration_text(faults.timeout_s)),
        "keepFor": FOREVER if faults.keep_for_s is None else duration_text(faults.keep_for_s),
    }


def _present(**entries: Any) -> dict[str, Any]:
    """The entries that say something: neither None nor empty."""
    return {key: value for key, value in entries.items() if value is not None and value not in ({}, [])}


def spec_text(job: TrainingJob) -> str:
    """The canonical mapping as JSON on one line: the form in which a spec travels and is kept on its Job."""
    return json.dumps(to_wire(job), separators=(",", ":"), ensure_ascii=False)


def spec_hash(job: TrainingJob) -> str:
    """SHA-256 of what a TrainingJob says, in hex: equal for specs that differ only in how they are written."""
    text = json.dumps(to_wire(job), separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
