# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes refuses in a container of a pod template.

Source: validateContainerCommon and what it calls (pkg/apis/core/validation/validation.go), Kubernetes 1.35.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.environment_rules import source_faults, variable_faults
from kfp_volcano.volcano.model.naming import choice_faults, label_faults, too_long
from kfp_volcano.volcano.model.request_rules import request_faults
from kfp_volcano.volcano.model.structural import Fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

__all__ = ["container_faults"]

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PORTS = range(1, 65536)
_LONGEST_PORT = 15


def container_faults(container: Mapping[str, Any], at: str, mountable: Collection[str]) -> Iterator[Fault]:
    """What is wrong with a container of a pod that has these volumes."""
    name = container["name"]
    if not name:
        yield Fault(f"{at}.name", "Required value")
    for sentence in label_faults(name) if name else ():
        yield Fault(f"{at}.name", f"Invalid value: {json.dumps(name)}: {sentence}")
    if not container.get("image"):
        yield Fault(f"{at}.image", "Required value")
    yield from _port_faults(container.get("ports") or (), f"{at}.ports")
    yield from variable_faults(container.get("env") or (), f"{at}.env")
    yield from source_faults(container.get("envFrom") or (), f"{at}.envFrom")
    yield from _mount_faults(container.get("volumeMounts") or (), f"{at}.volumeMounts", mountable)
    yield from choice_faults(container.get("imagePullPolicy") or "Always", _PULL_POLICIES, f"{at}.imagePullPolicy")
    yield from request_faults(container.get("resources") or {}, f"{at}.resources")


def _port_faults(ports: Sequence[Mapping[str, Any]], at: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"{at}[{index}]", port.get("name") or ""
        unfit = _port_name_faults(name)
        for sentence in unfit:
            yield Fault(f"{here}.name", f"Invalid value: {json.dumps(name)}: {sentence}")
        if not unfit and name in seen:
            yield Fault(f"{here}.name", f"Duplicate value: {json.dumps(name)}")
        seen |= {name} - {""}
        for field in ("containerPort", "hostPort"):
            number = port.get(field, 0)
            if number == 0 and field == "containerPort":
                yield Fault(f"{here}.{field}", "Required value")
            elif number and number not in _PORTS:
                yield Fault(
                    f"{here}.{field}", f"Invalid value: {number}: must be between 1 and {_PORTS[-1]}, inclusive"
                )
        yield from choice_faults(port.get("protocol") or "TCP", _PROTOCOLS, f"{here}.protocol")


def _port_name_faults(name: str) -> list[str]:
    """What is wrong with a port's name, which may be absent (IsValidPortName)."""
    if not name:
        return []
    faults = too_long(name, _LONGEST_PORT, "characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        faults.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        faults.append("must contain at least one letter (a-z)")
    if "--" in name:
        faults.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        faults.append("must not begin or end with a hyphen")
    return faults


def _mount_faults(mounts: Sequence[Mapping[str, Any]], at: str, mountable: Collection[str]) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        name, path = mount["name"], mount["mountPath"]
        if not name:
            yield Fault(f"{at}[{index}].name", "Required value")
        if name not in mountable:
            yield Fault(f"{at}[{index}].name", f"Not found: {json.dumps(name)}")
        if not path:
            yield Fault(f"{at}[{index}].mountPath", "Required value")
        if path in seen:
            yield Fault(f"{at}[{index}].mountPath", f"Invalid value: {json.dumps(path)}: must be unique")
        seen.add(path)
        for field in ("subPath", "subPathExpr"):
            below = mount.get(field) or ""
            if below.startswith("/"):
                yield Fault(f"{at}.{field}", f"Invalid value: {json.dumps(below)}: must be a relative path")
            if ".." in below.split("/"):
                yield Fault(f"{at}.{field}", f"Invalid value: {json.dumps(below)}: must not contain '..'")
