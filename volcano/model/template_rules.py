# SPDX-License-Identifier: Apache-2.0
"""What Volcano's webhook refuses in a task's pod template: Kubernetes' own rules for pods, and those of NUMA policies.

Sources: validateTaskTemplate, validateTaskTopoPolicy (pkg/webhooks/admission/jobs/validate/admit_job.go), Volcano
1.15.1; ValidatePodTemplate (pkg/apis/core/validation/validation.go), Kubernetes 1.35. Of the latter the rules of what
training pods use: labels, containers with ports, environment, mounts and requests, volumes, tolerations, node affinity.
Security contexts, probes, hooks and spread constraints are left to a real cluster.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.container_rules import container_faults
from kfp_volcano.volcano.model.naming import choice_faults, key_faults, label_faults, subdomain_faults, value_faults
from kfp_volcano.volcano.model.placement_rules import affinity_faults, toleration_faults
from kfp_volcano.volcano.model.resources import parse_quantity
from kfp_volcano.volcano.model.structural import Fault
from kfp_volcano.volcano.model.volume_rules import volume_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["template_problems"]

_WHOLE_CPU = 1000
_MOST_SECONDS = 2**31 - 1
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PREEMPTION = ("PreemptLowerPriority", "Never")


def template_problems(task: Mapping[str, Any], index: int) -> Iterator[tuple[str, str]]:
    """The field and the webhook's sentence of each thing that is wrong with a task's pods."""
    template = task.get("template") or {}
    start = f"spec.task[{index}]."
    for fault in _template_faults(template):
        yield f"spec.tasks[{index}].{fault.field}", f"{start}{fault}. "
        start = ""
    if start and task.get("topologyPolicy", "none") != "none":
        yield from _numa_problem(template["spec"], index)


def _numa_problem(pod: Mapping[str, Any], index: int) -> Iterator[tuple[str, str]]:
    """The first container that does not ask for a whole number of CPUs."""
    for number, container in enumerate((*pod["containers"], *(pod.get("initContainers") or ()))):
        stated = container.get("resources") or {}
        cpu = parse_quantity((stated.get("requests") or stated.get("limits") or {}).get("cpu", "0"))
        if not cpu or cpu % _WHOLE_CPU:
            sentence = f"the cpu request isn't  an integer in spec.task[{index}] container[{number}]."
            yield f"spec.tasks[{index}].topologyPolicy", sentence
            return


def _template_faults(template: Mapping[str, Any]) -> Iterator[Fault]:
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    yield from _label_faults(metadata.get("labels") or {}, "template.labels")
    for key in metadata.get("annotations") or {}:
        for sentence in key_faults(key.lower()):
            yield Fault("template.annotations", f"Invalid value: {json.dumps(key)}: {sentence}")
    at = "template.spec"
    volumes = pod.get("volumes") or ()
    broken = [list(volume_faults(volume, f"{at}.volumes[{index}]")) for index, volume in enumerate(volumes)]
    for faults in broken:
        yield from faults
    mountable = {volume["name"] for volume, faults in zip(volumes, broken, strict=True) if not faults}
    containers, first = pod.get("containers") or (), pod.get("initContainers") or ()
    if not containers:
        yield Fault(f"{at}.containers", "Required value")
    seen: set[str] = set()
    for field, several in (("containers", containers), ("initContainers", first)):
        for index, container in enumerate(several):
            yield from container_faults(container, f"{at}.{field}[{index}]", mountable)
            if container["name"] in seen:
                yield Fault(f"{at}.{field}[{index}].name", f"Duplicate value: {json.dumps(container['name'])}")
            seen.add(container["name"])
    yield from _host_port_faults(pod, f"{at}.containers")
    yield from choice_faults(pod.get("restartPolicy") or "Always", _RESTART_POLICIES, f"{at}.restartPolicy")
    yield from choice_faults(pod.get("dnsPolicy") or "ClusterFirst", _DNS_POLICIES, f"{at}.dnsPolicy")
    yield from _label_faults(pod.get("nodeSelector") or {}, f"{at}.nodeSelector")
    yield from affinity_faults(pod.get("affinity") or {}, f"{at}.affinity")
    yield from _name_faults(pod.get("serviceAccountName"), f"{at}.serviceAccountName", subdomain=True)
    seconds = pod.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= _MOST_SECONDS:
        sentence = f"must be between 1 and {_MOST_SECONDS}, inclusive"
        yield Fault(f"{at}.activeDeadlineSeconds", f"Invalid value: {seconds}: {sentence}")
    yield from _name_faults(pod.get("hostname"), f"{at}.hostname", subdomain=False)
    yield from _name_faults(pod.get("subdomain"), f"{at}.subdomain", subdomain=False)
    yield from toleration_faults(pod.get("tolerations") or (), f"{at}.tolerations")
    yield from _name_faults(pod.get("priorityClassName"), f"{at}.priorityClassName", subdomain=True)
    yield from _name_faults(pod.get("runtimeClassName"), f"{at}.runtimeClassName", subdomain=True)
    yield from choice_faults(pod.get("preemptionPolicy") or "Never", _PREEMPTION, f"{at}.preemptionPolicy")


def _host_port_faults(pod: Mapping[str, Any], at: str) -> Iterator[Fault]:
    """On the host's network a port is the host's."""
    for index, container in enumerate(pod.get("containers") or () if pod.get("hostNetwork") else ()):
        for place, port in enumerate(container.get("ports") or ()):
            taken = port.get("hostPort", 0)
            if taken and taken != port["containerPort"]:
                sentence = "must match `containerPort` when `hostNetwork` is true"
                yield Fault(f"{at}[{index}].ports[{place}].hostPort", f"Invalid value: {taken}: {sentence}")


def _label_faults(labels: Mapping[str, str], at: str) -> Iterator[Fault]:
    for key, value in labels.items():
        for text, faults in ((key, key_faults(key)), (value, value_faults(value))):
            for sentence in faults:
                yield Fault(at, f"Invalid value: {json.dumps(text)}: {sentence}")


def _name_faults(name: str | None, at: str, *, subdomain: bool) -> Iterator[Fault]:
    if name:
        for sentence in subdomain_faults(name) if subdomain else label_faults(name):
            yield Fault(at, f"Invalid value: {json.dumps(name)}: {sentence}")
