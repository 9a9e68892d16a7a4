"""What the API server and Volcano's webhooks answer to a new or changed object.

Sources: pkg/webhooks/admission/{jobs,queues} of Volcano 1.15.1 and its CRDs. Messages are theirs, so that what a user
reads here is what a real cluster says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.volcano.model import custom_resources, job_admission, queue_admission

if TYPE_CHECKING:
    from kfp_volcano.volcano.model.objects import Manifest, Objects

__all__ = ["admit_create", "admit_update"]


def admit_create(manifest: Manifest, objects: Objects) -> Manifest:
    """The object with its defaults filled in. Raises InvalidError."""
    match manifest["kind"]:
        case "Job":
            return job_admission.admit_create(manifest, objects)
        case "Queue":
            return queue_admission.admit_create(manifest, objects)
        case "PodGroup":
            return _admit_pod_group(manifest)
        case "Pod":
            return _admit_pod(manifest, objects)
    return manifest


def admit_update(old: Manifest, new: Manifest) -> None:
    """Refuse what may not change. Raises InvalidError."""
    if new["kind"] == "Job" and new.get("spec") is not old.get("spec"):  # equal is not enough: to Python True is 1
        job_admission.admit_update(old, new)


def _admit_pod_group(group: Manifest) -> Manifest:
    """The CRD's rules. That its queue is open the webhook asks too; of a Job's PodGroup that is known already."""
    settled = custom_resources.read(group, "validatepodgroup.volcano.sh")
    custom_resources.check(settled)
    return settled


def _admit_pod(pod: Manifest, objects: Objects) -> Manifest:
    """The priority admission plugin: the class's value becomes the pod's."""
    name = pod["spec"].get("priorityClassName")
    known = objects.get("PriorityClass", {}).get(("", name or ""))
    spec = {**pod["spec"], "priority": known["value"] if known else 0}
    return {**pod, "spec": spec, "status": {"phase": "Pending", **pod.get("status", {})}}
