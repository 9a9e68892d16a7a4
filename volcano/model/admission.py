"""What the API server and Volcano's webhooks answer to a new or changed object.

Sources: pkg/webhooks/admission/{jobs,queues} of Volcano 1.15.1 and its CRDs. Messages are theirs, so that what a user
reads here is what a real cluster says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model import job_admission
from kfp_volcano.volcano.model.objects import Manifest, Objects, key_of
from kfp_volcano.volcano.model.resources import parse_quantity, resources

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["admit_create", "admit_update"]

_DEFAULT_QUEUE_WEIGHT = 1


def admit_create(manifest: Manifest, objects: Objects) -> Manifest:
    """The object with its defaults filled in. Raises InvalidError."""
    if manifest["kind"] == "Job":
        return job_admission.admit_create(manifest, objects)
    if manifest["kind"] == "Queue":
        return _admit_queue(manifest, objects)
    if manifest["kind"] == "Pod":
        return _admit_pod(manifest, objects)
    return manifest


def admit_update(old: Manifest, new: Manifest) -> None:
    """Refuse what may not change. Raises InvalidError."""
    if new["kind"] == "Job" and new.get("spec") != old.get("spec"):
        job_admission.admit_update(old, new)


def _admit_pod(pod: Manifest, objects: Objects) -> Manifest:
    """The priority admission plugin: the class's value becomes the pod's."""
    name = pod["spec"].get("priorityClassName")
    known = objects.get("PriorityClass", {}).get(("", name or ""))
    spec = {**pod["spec"], "priority": known["value"] if known else 0}
    return {**pod, "spec": spec, "status": {"phase": "Pending", **pod.get("status", {})}}


def _admit_queue(queue: Manifest, objects: Objects) -> Manifest:
    name = key_of(queue)[1]
    spec: dict[str, Any] = {"reclaimable": True, **queue.get("spec", {})}
    spec["weight"] = spec.get("weight") or _DEFAULT_QUEUE_WEIGHT
    problems = _queue_problems(spec)
    parent = spec.get("parent")
    if parent == name:
        problems.append(f"queue {name} cannot use itself as parent")
    elif parent and parent != "root" and ("", parent) not in objects.get("Queue", {}):
        problems.append(f"failed to get parent queue {parent} of queue {name}")
    if problems:
        raise InvalidError(f'admission webhook "validatequeue.volcano.sh" denied the request: {"; ".join(problems)}')
    return {**queue, "spec": spec}


def _queue_problems(spec: Mapping[str, Any]) -> list[str]:
    guarantee = (spec.get("guarantee") or {}).get("resource") or {}
    try:
        for quantity in (*(spec.get("capability") or {}).values(), *(spec.get("deserved") or {}).values()):
            parse_quantity(quantity)
        capability, deserved, least = (
            resources(spec.get("capability")),
            resources(spec.get("deserved")),
            resources(guarantee),
        )
    except ValueError as error:
        return [str(error)]
    problems = [
        f"spec.deserved: {name} must be <= capability"
        for name in deserved
        if deserved[name] > capability.get(name, deserved[name])
    ]
    problems += [f"spec.guarantee: {name} must be <= deserved" for name in least if least[name] > deserved.get(name, 0)]
    return problems
