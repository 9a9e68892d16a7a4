# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes asks of the fields of a pod template together.

What it asks of each by itself is in the published schema of pod templates. Source: ValidatePodTemplateSpec in
pkg/apis/core/validation/validation.go of Kubernetes 1.35, with the options that Volcano's webhook gives it, which are
none: it refuses what Kubernetes itself has known for a short time only.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import pod_affinity, pod_containers, pod_volumes
from kfp_volcano.schemas.structure import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.schemas.structure import Path

__all__ = ["faults", "toleration_faults"]

_SPEC: Path = ("spec",)
_MOST_SEARCHED = 2048
_NAMESPACED = {"hostNetwork": ("net.",), "hostIPC": ("kernel.msg", "kernel.sem", "kernel.shm", "fs.mqueue.")}
"""Kernel parameters that a pod shares with its node where it shares the namespace."""


def faults(template: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with a pod template whose fields are right one by one, at places in it."""
    spec = template["spec"]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    yield from pod_volumes.faults(spec.get("volumes", ()), (*_SPEC, "volumes"))
    yield from pod_containers.faults(spec, volumes, _SPEC)
    yield from _claims(spec.get("resourceClaims", ()))
    yield from _security(spec)
    yield from _namespaces(spec)
    yield from pod_affinity.faults(spec.get("affinity", {}), (*_SPEC, "affinity"))
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        yield from _spread(constraint, (*_SPEC, "topologySpreadConstraints", index))
    for index, toleration in enumerate(spec.get("tolerations", ())):
        yield from toleration_faults(toleration, (*_SPEC, "tolerations", index))
    yield from _names(spec)
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield Finding((*_SPEC, "nodeName"), "cannot be given while there are schedulingGates", "leave one of them out")


def toleration_faults(toleration: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    """What is wrong with a toleration (ValidateTolerations)."""
    if toleration.get("operator") == "Exists" and toleration.get("value"):
        yield Finding((*path, "value"), "goes with operator Equal alone", "leave it out")
    if not toleration.get("key") and toleration.get("operator", "Equal") == "Equal":
        yield Finding((*path, "key"), "is missing: without it the operator has to be Exists", "operator: Exists")
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        yield Finding((*path, "tolerationSeconds"), "goes with effect NoExecute alone", "effect: NoExecute")


def _claims(claims: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for index, claim in enumerate(claims):
        if ("resourceClaimName" in claim) == ("resourceClaimTemplateName" in claim):
            path = (*_SPEC, "resourceClaims", index)
            yield Finding(path, "needs one source", "resourceClaimName or resourceClaimTemplateName")


def _security(spec: Mapping[str, Any]) -> Iterator[Finding]:
    context, path = spec.get("securityContext", {}), (*_SPEC, "securityContext")
    yield from pod_containers.profile_faults(context, path)
    seen: set[str] = set()
    for index, parameter in enumerate(context.get("sysctls", ())):
        name, place = parameter["name"], (*path, "sysctls", index, "name")
        if name in seen:
            yield Finding(place, f"{name} is there twice", "once")
        seen.add(name)
        for key, prefixes in _NAMESPACED.items():
            if spec.get(key) and name.replace("/", ".").startswith(prefixes):
                yield Finding(place, f"{name} would be the node's with {key}", f"leave it or {key} out")


def _namespaces(spec: Mapping[str, Any]) -> Iterator[Finding]:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        yield Finding((*_SPEC, "shareProcessNamespace"), "does not go with hostPID", "leave one of them out")
    if spec.get("hostUsers") is False:
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(key):
                yield Finding((*_SPEC, key), "does not go with hostUsers: false", "leave one of them out")


def _spread(constraint: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    if "minDomains" in constraint and constraint["whenUnsatisfiable"] != "DoNotSchedule":
        yield Finding((*path, "minDomains"), "goes with whenUnsatisfiable: DoNotSchedule alone", "leave it out")
    selector = constraint.get("labelSelector")
    keys = constraint.get("matchLabelKeys", ())
    if keys and selector is None:
        yield Finding((*path, "matchLabelKeys"), "needs a labelSelector beside it", "labelSelector: {}")
    told = pod_affinity.keys_of(selector or {})
    for index, key in enumerate(keys):
        if key in told:
            yield Finding((*path, "matchLabelKeys", index), f"{key} is in the labelSelector too", "name it once")
    yield from pod_affinity.selector_faults(selector or {}, (*path, "labelSelector"))


def _names(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """How the pod finds others: name servers, searched domains, hosts."""
    config = spec.get("dnsConfig", {})
    servers, path = config.get("nameservers", ()), (*_SPEC, "dnsConfig")
    if spec.get("dnsPolicy") == "None" and not servers:
        yield Finding((*path, "nameservers"), "is missing: dnsPolicy None needs one", "the address of a name server")
    for index, server in enumerate(servers):
        yield from _address(server, (*path, "nameservers", index))
    if len(" ".join(config.get("searches", ()))) > _MOST_SEARCHED:
        yield Finding((*path, "searches"), "is too long", f"{_MOST_SEARCHED} characters together")
    for index, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            yield Finding((*path, "options", index, "name"), "is missing", "for example ndots")
    for index, alias in enumerate(spec.get("hostAliases", ())):
        yield from _address(alias["ip"], (*_SPEC, "hostAliases", index, "ip"))


def _address(text: str, path: Path) -> Iterator[Finding]:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        yield Finding(path, f"{text} is no IP address", "for example 10.0.0.10")
