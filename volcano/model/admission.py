# SPDX-License-Identifier: Apache-2.0
"""What the API server and Volcano's webhooks answer to a new or changed object.

Sources: pkg/webhooks/admission/{jobs,podgroups,queues} of Volcano 1.15.1 and its CRDs. Messages are theirs, so that
what a user reads here is what a real cluster says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.model import custom_resources, job_admission, queue_admission
from kfp_volcano.volcano.model.job_rules import topology_problem
from kfp_volcano.volcano.model.objects import Manifest, Objects, key_of, status_of
from kfp_volcano.volcano.model.priorities import priority_class

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["admit_create", "admit_delete", "admit_update"]

_POD_GROUPS = "validatepodgroup.volcano.sh"


def admit_create(manifest: Manifest, objects: Objects) -> Manifest:
    """The object with its defaults filled in. Raises InvalidError."""
    match manifest["kind"]:
        case "Job":
            return job_admission.admit_create(manifest, objects)
        case "Queue":
            return queue_admission.admit_create(manifest, objects)
        case "PodGroup":
            return _admit_pod_group(manifest, objects)
        case "Pod":
            return _admit_pod(manifest, objects)
    return manifest


def admit_update(old: Manifest, new: Manifest, objects: Objects) -> None:
    """Refuse what may not change. Raises InvalidError."""
    if new.get("spec") is old.get("spec"):  # equal is not enough: to Python True is 1
        return
    if new["kind"] == "Job":
        job_admission.admit_update(old, new)
    elif new["kind"] == "Queue":
        queue_admission.admit_update(old, new, objects)


def admit_delete(manifest: Manifest, objects: Objects) -> None:
    """Refuse what may not go. Raises InvalidError."""
    if manifest["kind"] == "Queue":
        queue_admission.admit_delete(manifest, objects)


def _admit_pod_group(group: Manifest, objects: Objects) -> Manifest:
    """The CRD's rules and the webhook's: the queue is there and open, each tier is said in one way."""
    settled = custom_resources.read(group, _POD_GROUPS, changing=False)
    custom_resources.check(settled)
    problems = list(_pod_group_problems(settled.get("spec") or {}, objects))
    if problems:
        sentence = "".join(found for _, found in problems).strip()
        raise InvalidError(
            f'admission webhook "{_POD_GROUPS}" denied the request: {sentence}', fields=[field for field, _ in problems]
        )
    return settled


def _pod_group_problems(spec: Manifest, objects: Objects) -> Iterator[tuple[str, str]]:
    name = spec.get("queue", "")
    queue = objects.get("Queue", {}).get(("", name))
    if name and queue is None:
        yield "spec.queue", f'unable to find queue: queue.scheduling.volcano.sh "{name}" not found'
    elif queue is not None and status_of(queue).get("state", "") != "Open":
        state = status_of(queue).get("state", "")
        yield (
            "spec.queue",
            f"can only submit PodGroup to queue with state `Open`, queue `{name}` status is `{state}`. ",
        )
    twice = topology_problem(spec.get("networkTopology"))
    if twice:
        yield "spec.networkTopology", f"{twice}."
    for index, policy in enumerate(spec.get("subGroupPolicy") or ()):
        twice = topology_problem(policy.get("networkTopology"))
        if twice:
            where = f"in subGroupPolicy '{policy.get('name', '')}': "
            yield f"spec.subGroupPolicy[{index}].networkTopology", f"{where}{twice}."
            return


def _admit_pod(pod: Manifest, objects: Objects) -> Manifest:
    """The priority admission plugin: the class's value becomes the pod's; a class has to be there."""
    name = pod["spec"].get("priorityClassName", "")
    known = priority_class(objects, name)
    if known is None:
        raise InvalidError(f'pods "{key_of(pod)[1]}" is forbidden: no PriorityClass with name {name} was found')
    spec = {**pod["spec"], "priority": known["value"]}
    if "preemptionPolicy" in known:
        spec["preemptionPolicy"] = known["preemptionPolicy"]
    return {**pod, "spec": spec, "status": {"phase": "Pending", **pod.get("status", {})}}
