# SPDX-License-Identifier: Apache-2.0
"""Containers of a pod, as Kubernetes takes them.

Source: validateContainers and validateInitContainers (pkg/apis/core/validation/validation.go), Kubernetes 1.35.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.pod_fields import field_faults, resource_faults
from kfp_volcano.schemas.pod_volumes import mount_faults
from kfp_volcano.schemas.quantities import is_multiple, quantity
from kfp_volcano.schemas.structure import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.schemas.structure import Path

__all__ = ["faults", "profile_faults"]

_FIELDS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
"""Fields of the pod that a variable may hold."""
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HUGE = "hugepages-"


def faults(spec: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]], path: Path) -> Iterator[Finding]:
    """What is wrong with the containers of a pod whose fields are right one by one."""
    names: set[str] = set()
    host_ports: set[tuple[Any, ...]] = set()
    for key in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(key, ())):
            place = (*path, key, index)
            if container["name"] in names:
                yield Finding((*place, "name"), f"{container['name']} is the name of another container", "another name")
            names.add(container["name"])
            yield from _container(container, spec, place)
            yield from mount_faults(container, volumes, place)
            if key == "initContainers":
                host_ports = set()  # they run one after another
                yield from _init(container, place)
            yield from _ports(container.get("ports", ()), host_ports, spec, (*place, "ports"))


def _container(container: Mapping[str, Any], spec: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    for index, variable in enumerate(container.get("env", ())):
        yield from _variable(variable, (*path, "env", index))
    for index, source in enumerate(container.get("envFrom", ())):
        place = (*path, "envFrom", index)
        if ("configMapRef" in source) == ("secretRef" in source):
            yield Finding(place, "needs one source", "configMapRef or secretRef")
        for key in source.keys() & {"configMapRef", "secretRef"}:
            if not source[key].get("name"):
                yield Finding((*place, key, "name"), "is missing", "its name")
    yield from _resources(container.get("resources", {}), spec, (*path, "resources"))
    yield from _context(container, spec, (*path, "securityContext"))
    yield from _handlers(container, spec.get("terminationGracePeriodSeconds", 30), path)
    yield from _resizing(container.get("resizePolicy", ()), spec, (*path, "resizePolicy"))


def _handlers(container: Mapping[str, Any], grace: int, path: Path) -> Iterator[Finding]:
    """Programs and requests at the begin and end of a container, and those that ask how it is."""
    for key, handler in container.get("lifecycle", {}).items():
        place = (*path, "lifecycle", key)
        yield from _handler(handler, place)
        if handler.get("sleep", {}).get("seconds", 0) > grace:
            yield Finding(
                (*place, "sleep", "seconds"), f"is more than the {grace} s that a pod has for its end", "less"
            )
    for key in _PROBES:
        if key in container:
            yield from _handler(container[key], (*path, key))
    if "terminationGracePeriodSeconds" in container.get("readinessProbe", {}):
        place = (*path, "readinessProbe", "terminationGracePeriodSeconds")
        yield Finding(place, "is for liveness and startup probes alone", "leave it out")


def _resizing(policies: Sequence[Mapping[str, Any]], spec: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    seen = set()
    for index, policy in enumerate(policies):
        if policy["resourceName"] in seen:
            yield Finding((*path, index, "resourceName"), f"{policy['resourceName']} is there twice", "once")
        seen.add(policy["resourceName"])
        if spec.get("restartPolicy") == "Never" and policy["restartPolicy"] != "NotRequired":
            place = (*path, index, "restartPolicy")
            yield Finding(place, "does not go with restartPolicy Never of the pod", "NotRequired")


def _init(container: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    if container.get("restartPolicy") != "Always":
        for key in ("lifecycle", *_PROBES):
            if key in container:
                yield Finding((*path, key), "is for init containers that run on", "restartPolicy: Always")


def _variable(variable: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    if "valueFrom" not in variable:
        return
    given, place = variable["valueFrom"], (*path, "valueFrom")
    sources = [key for key in _ENV_SOURCES if key in given]
    if len(sources) != 1:
        yield Finding(place, f"has {' and '.join(sources) or 'no source'}", f"exactly one of {', '.join(_ENV_SOURCES)}")
    elif variable.get("value"):
        yield Finding(place, "does not go with a value", "leave one of them out")
    if "fieldRef" in given:
        yield from field_faults(given["fieldRef"]["fieldPath"], _FIELDS, (*place, "fieldRef", "fieldPath"))
    if "resourceFieldRef" in given:
        yield from resource_faults(given["resourceFieldRef"], (*place, "resourceFieldRef"), of_container=False)
    for key in given.keys() & {"configMapKeyRef", "secretKeyRef"}:
        if not given[key].get("name"):
            yield Finding((*place, key, "name"), "is missing", "its name")


def _resources(resources: Mapping[str, Any], spec: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for key, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            place = (*path, key, name)
            if name == "storage" or name.split("/")[0].endswith("kubernetes.io") or name.startswith("requests."):
                yield Finding(place, "is no resource of containers", "another name")
            elif "/" in name and not is_multiple(amount):
                yield Finding(place, f"{amount} is no whole number", "such resources are counted")
            elif name.startswith(_HUGE) and not is_multiple(amount, name.removeprefix(_HUGE)):
                yield Finding(place, f"{amount} is no multiple of a page", f"a multiple of {name.removeprefix(_HUGE)}")
    for name, amount in requests.items():
        place, limit = (*path, "requests", name), limits.get(name)
        counted = "/" in name or name.startswith(_HUGE)
        if counted and (limit is None or quantity(limit) != quantity(amount)):
            yield Finding(place, "is not what limits say, and such resources are not shared", "the same in limits")
        elif limit is not None and quantity(limit) < quantity(amount):
            yield Finding(place, f"{amount} is more than its limit", f"at most {limit}")
    named = {*limits, *requests}
    if not named & {"cpu", "memory"} and any(name.startswith(_HUGE) for name in named):
        yield Finding(path, "has huge pages, which need cpu or memory beside them", "memory")
    yield from _claims(resources.get("claims", ()), spec, (*path, "claims"))


def _claims(claims: Sequence[Mapping[str, Any]], spec: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    known = [claim["name"] for claim in spec.get("resourceClaims", ())]
    used: list[tuple[str, str]] = []
    for index, claim in enumerate(claims):
        name, request = claim["name"], claim.get("request", "")
        if name not in known:
            yield Finding((*path, index, "name"), f"there is no {name} in the pod's resourceClaims", "one of those")
        if any(name == other and (not request or part in {"", request}) for other, part in used):
            yield Finding((*path, index, "name"), f"{name} is there twice", "once")
        used.append((name, request))


def _context(container: Mapping[str, Any], spec: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    context = container.get("securityContext", {})
    yield from profile_faults(context, path)
    if context.get("procMount") == "Unmasked" and spec.get("hostUsers") is not False:
        yield Finding((*path, "procMount"), "Unmasked needs hostUsers: false", "leave it out")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            yield Finding(path, "is privileged, and may not escalate", "leave allowPrivilegeEscalation out")
        if "CAP_SYS_ADMIN" in context.get("capabilities", {}).get("add", ()):
            yield Finding(path, "adds CAP_SYS_ADMIN, and may not escalate", "leave allowPrivilegeEscalation out")
    if container.get("volumeDevices") and spec.get("hostUsers") is False:
        yield Finding((*path[:-1], "volumeDevices"), "does not go with hostUsers: false", "leave one of them out")


def profile_faults(context: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """What is wrong with the profiles in a security context: of a file on the node, or of none."""
    for key in ("seccompProfile", "appArmorProfile"):
        profile = context.get(key)
        if profile and ("localhostProfile" in profile) != (profile["type"] == "Localhost"):
            yield Finding((*path, key, "localhostProfile"), "goes with type Localhost alone", "both or none")


def _handler(handler: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    found = [key for key in _HANDLERS if key in handler]
    if len(found) != 1:
        yield Finding(path, f"has {' and '.join(found) or 'nothing to do'}", "one of exec, httpGet, tcpSocket, …")
    if "exec" in handler and not handler["exec"].get("command"):
        yield Finding((*path, "exec", "command"), "is missing", "a program and its arguments")


def _ports(
    ports: Sequence[Mapping[str, Any]], taken: set[tuple[Any, ...]], spec: Mapping[str, Any], path: Path
) -> Iterator[Finding]:
    names = set()
    for index, port in enumerate(ports):
        name, number = port.get("name"), port.get("hostPort")
        if name and name in names:
            yield Finding((*path, index, "name"), f"{name} is the name of another port", "another name")
        names.add(name)
        if spec.get("hostNetwork"):
            number = number or port["containerPort"]
        if not number:
            continue
        if spec.get("hostNetwork") and number != port["containerPort"]:
            yield Finding((*path, index, "hostPort"), "is another than containerPort with hostNetwork", "leave it out")
        key = (port.get("protocol", "TCP"), port.get("hostIP", ""), number)
        if key in taken:
            yield Finding((*path, index, "hostPort"), f"{number} is another container's", "another port")
        taken.add(key)
