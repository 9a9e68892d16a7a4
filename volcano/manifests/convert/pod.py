# SPDX-License-Identifier: Apache-2.0
"""A pod template (core/v1 PodTemplateSpec) to what a role of a TrainingJob says of its pods.

What a TrainingJob has a word for is said with it; everything else of the template goes to podPatch, where the training
container is called after its role; what Volcano's API does not take is accounted for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.quantities import quantity
from kfp_volcano.volcano.manifests.convert.draft import CONTAINER, OTHERS, Draft, part
from kfp_volcano.volcano.manifests.convert.environment import read_environment
from kfp_volcano.volcano.manifests.convert.metadata import reserved
from kfp_volcano.volcano.manifests.convert.resources import read_resources
from kfp_volcano.volcano.manifests.convert.source import refuse
from kfp_volcano.volcano.manifests.convert.volumes import read_volumes

if TYPE_CHECKING:
    from collections.abc import Collection

    from kfp_volcano.volcano.manifests.convert.source import Account, View

__all__ = [
    "read_numa",
    "read_pod",
    "read_pod_metadata",
    "read_program",
    "read_scheduler",
    "read_security",
    "read_template",
]

_TOLERATION = {"key", "operator", "value", "effect", "tolerationSeconds"}
_BY_VOLCANO = {
    "hostname": "Volcano names its pods itself, so that they find each other",
    "subdomain": "Volcano names its pods itself, so that they find each other",
    "nodeName": "a pod that names its node is not scheduled, by Volcano or anything",
    "schedulingGates": "Volcano's Job waits as a gang; nothing would lift the gates",
    "ephemeralContainers": "exist only in running pods",
    "priority": "is what the PriorityClass says",
}
"""Fields that would break scheduling or discovery, and why."""
_NUMA = "volcano.sh/numa-topology-policy"


def read_template(template: View, name: str, *, main: Collection[str] = (), resources: View | None = None) -> Draft:
    """The role of that name whose pods are made from a template.

    The training container is the first that is called like one of `main`, else the first; `resources` stand in place
    of its own.
    """
    draft = Draft(name=name)
    pod = template.map("spec")
    containers = pod.maps("containers")
    if not containers:
        refuse(pod.at("containers"), "is missing: a pod has containers")
    training = next((each for each in containers if each.peek("name") in main), containers[0])
    _read_container(training, draft, resources)
    draft.container = training.at()
    read_pod_metadata(template.map("metadata"), draft)
    read_pod(pod, draft, container=training)
    for other in containers:
        if other is not training:
            draft.patch.append(OTHERS, {key: other.any(key) for key in other}, other.at())
    return draft


def _read_container(container: View, draft: Draft, resources: View | None) -> None:
    """Read the training container, but for its volume mounts, into a role."""
    container.text("name", to=draft.place())  # by which podPatch calls it
    read_program(container, draft)
    read_environment(container, draft)
    if resources is not None:
        container.changed("resources", draft.place("resources"), f"{resources.at()} stands in their place")
    read_resources(container.map("resources") if resources is None else resources, draft)
    pod = draft.parts.setdefault("pod", {})
    if policy := container.text("imagePullPolicy", to=draft.place("pod", "imagePullPolicy")):
        pod["imagePullPolicy"] = policy
    read_security(container, draft, "containerSecurityContext", ("spec", "containers", "*", "securityContext"))
    for key in container.rest():
        if key != "volumeMounts":
            draft.patch.set((*CONTAINER, key), container.any(key), container.at(key))


def read_numa(draft: Draft, policy: str, path: str, account: Account) -> None:
    """Read how a role's pods are aligned to NUMA nodes, once its resources are known."""
    resources = draft.parts.get("resources", {})
    if policy == "none":
        account.kept(path, draft.place("placement", "numa"))
    elif resources.get("reserved") and quantity(resources.get("cpu", "0")) % 1 == 0:
        draft.parts.setdefault("placement", {})["numa"] = policy
        account.kept(path, draft.place("placement", "numa"))
    else:
        why = "the kubelet aligns only pods with whole CPUs whose limits are their requests: it has no effect here"
        account.lost(path, why, "equal limits and requests of cpu and memory, whole CPUs")


def read_scheduler(view: View) -> None:
    """Read `schedulerName`: Volcano schedules what a TrainingJob becomes."""
    if view.text("schedulerName") == "volcano":
        view.account.kept(view.at("schedulerName"), "spec.queue")
    else:
        view.changed("schedulerName", "spec.queue", "Volcano schedules the Job")


def read_program(container: View, draft: Draft) -> None:
    """Read what a container runs into a role; what is said replaces what the role says already."""
    if image := container.text("image", to=draft.place("image")):
        draft.parts["image"] = image
    for key in ("command", "args"):
        if words := container.texts(key, to=draft.place(key)):
            draft.parts[key] = words


def read_pod(pod: View, draft: Draft, *, container: View | None = None) -> None:
    """Read the pod's own fields, and the volumes with their mounts in the training container, into a role."""
    read_volumes(pod, container, draft)
    _read_identity(pod, draft)
    _read_placement(pod, draft)
    if priority := pod.text("priorityClassName", to="spec.priority"):
        draft.priority, draft.priority_path = priority, pod.at("priorityClassName")
    grace = pod.number("terminationGracePeriodSeconds", to="spec.elasticity.grace")
    draft.grace = draft.grace if grace is None else grace
    read_scheduler(pod)
    for key, why in _BY_VOLCANO.items():
        pod.lost(key, why, "say where pods may run in spec.placement" if key == "nodeName" else "")
    for key in pod.rest():
        if key not in ("containers", "restartPolicy"):
            draft.patch.set(("spec", key), pod.any(key), pod.at(key))


def read_pod_metadata(metadata: View, draft: Draft) -> None:
    """Read the labels and annotations of the pods into a role."""
    for key, found in (("labels", draft.labels), ("annotations", draft.annotations)):
        for name, value in metadata.labels(key).items():
            if name == _NUMA:
                read_numa(draft, value, metadata.at(key, name), metadata.account)
            elif told := reserved(key, name):
                metadata.account.lost(metadata.at(key, name), *told)
            else:
                found[name] = value
                metadata.account.kept(metadata.at(key, name), f"metadata.{key}, or podPatch of the role")
    for key in metadata.rest():
        metadata.lost(key, "has no meaning for pods that a Job makes", "leave it out")


def _read_identity(pod: View, draft: Draft) -> None:
    found = draft.parts.setdefault("pod", {})
    place = draft.place("pod", "serviceAccount")
    account = pod.text("serviceAccountName", to=place) or pod.text("serviceAccount", to=place)
    pod.text("serviceAccount", to=place)
    if account:
        found["serviceAccount"] = account
    token = pod.flag("automountServiceAccountToken", to=draft.place("pod", "token"))
    if token is None and account:
        token = True  # Kubernetes mounts it where nothing is said; a TrainingJob does not
    if token is not None:
        found["token"] = token
    secrets = pod.maps("imagePullSecrets")
    names = [name for secret in secrets if (name := secret.text("name", to=draft.place("pod", "imagePullSecrets")))]
    if names:
        found["imagePullSecrets"] = list(dict.fromkeys([*found.get("imagePullSecrets", ()), *names]))
    read_security(pod, draft, "securityContext", ("spec", "securityContext"))


def read_security(view: View, draft: Draft, key: str, place: tuple[str, ...]) -> None:
    """Read a securityContext, which is at `place` in a pod template, into a role's `pod`."""
    value = view.any("securityContext", to=draft.place("pod", key))
    if value is not None:
        draft.parts.setdefault("pod", {})[key] = part(value, place, view.at("securityContext"), view.account)


def _read_placement(pod: View, draft: Draft) -> None:
    found: dict[str, Any] = draft.parts.setdefault("placement", {})
    if labels := pod.labels("nodeSelector"):
        found["nodeSelector"] = {**found.get("nodeSelector", {}), **labels}
        pod.account.kept(pod.at("nodeSelector"), draft.place("placement", "nodeSelector"))
    if affinity := pod.any("affinity", to=draft.place("placement", "affinity")):
        found["affinity"] = part(affinity, ("spec", "affinity"), pod.at("affinity"), pod.account)
    tolerations = pod.peek("tolerations")
    if isinstance(tolerations, list) and all(map(_is_known, tolerations)):
        pod.any("tolerations", to=draft.place("placement", "tolerations"))
        if tolerations:
            said = [{key: part for key, part in each.items() if part not in (None, "")} for each in tolerations]
            found["tolerations"] = [*found.get("tolerations", ()), *said]


def _is_known(toleration: Any) -> bool:
    """Whether it is one that a TrainingJob can say; Kubernetes has further operators."""
    return (
        isinstance(toleration, dict)
        and set(toleration) <= _TOLERATION
        and toleration.get("operator") in (None, "", "Equal", "Exists")
        and (toleration.get("tolerationSeconds") or 0) >= 0
    )
