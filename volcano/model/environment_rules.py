# SPDX-License-Identifier: Apache-2.0
"""What Kubernetes refuses in a container's environment.

Source: ValidateEnv, ValidateEnvFrom (pkg/apis/core/validation/validation.go) and the fields of a pod that a variable
may name (pkg/apis/core/pods/helpers.go), Kubernetes 1.35.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.model.naming import subdomain_faults
from kfp_volcano.volcano.model.structural import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["source_faults", "variable_faults"]

_NAME = "[-._a-zA-Z][-._a-zA-Z0-9]*"
_KEY = "[-._a-zA-Z0-9]+"
_FIELDS = frozenset({
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
})  # fmt: skip
_OTHER_FIELDS = frozenset({
    "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase",
})  # fmt: skip
"""Fields that are known, but to no variable."""
_ENTRY = re.compile(r"metadata\.(annotations|labels)\['[^']*'\]")


def variable_faults(variables: Sequence[Mapping[str, Any]], at: str) -> Iterator[Fault]:
    """What is wrong with `env`."""
    for index, variable in enumerate(variables):
        here, name, origin = f"{at}[{index}]", variable["name"], variable.get("valueFrom")
        if name:
            yield from _name_faults(name, f"{here}.name")
        else:
            yield Fault(f"{here}.name", "Required value")
        if origin is None:
            continue
        yield from _origin_faults(origin, f"{here}.valueFrom")
        if not origin:
            known = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            yield Fault(f"{here}.valueFrom", f'Invalid value: "": must specify one of: {known}')
        elif variable.get("value"):
            yield Fault(f"{here}.valueFrom", 'Invalid value: "": may not be specified when `value` is not empty')
        elif len(origin) > 1:
            sentence = "may not have more than one field specified at a time"
            yield Fault(f"{here}.valueFrom", f'Invalid value: "": {sentence}')


def source_faults(sources: Sequence[Mapping[str, Any]], at: str) -> Iterator[Fault]:
    """What is wrong with `envFrom`."""
    for index, source in enumerate(sources):
        here, prefix = f"{at}[{index}]", source.get("prefix")
        if prefix:
            yield from _name_faults(prefix, f"{here}.prefix")
        given = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        for kind in given:
            yield from _object_faults(source[kind].get("name", ""), f"{here}.{kind}.name")
        if not given:
            yield Fault(at, 'Invalid value: "": must specify one of: `configMapRef` or `secretRef`')
        elif len(given) > 1:
            yield Fault(at, 'Invalid value: "": may not have more than one field specified at a time')


def _name_faults(name: str, at: str) -> Iterator[Fault]:
    quoted = json.dumps(name)
    if not re.fullmatch(_NAME, name):
        sentence = (
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.',"
            " and must not start with a digit"
            f" (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '{_NAME}')"
        )
        yield Fault(at, f"Invalid value: {quoted}: {sentence}")
    if name in {".", ".."}:
        yield Fault(at, f"Invalid value: {quoted}: must not be '{name}'")
    elif name.startswith(".."):
        yield Fault(at, f"Invalid value: {quoted}: must not start with '..'")


def _origin_faults(origin: Mapping[str, Any], at: str) -> Iterator[Fault]:
    field = (origin.get("fieldRef") or {}).get("fieldPath")
    if field is not None and field not in _FIELDS and not _ENTRY.fullmatch(field):
        where = f"{at}.fieldRef.fieldPath"
        if field in _OTHER_FIELDS:
            supported = ", ".join(json.dumps(each) for each in sorted(_FIELDS))
            yield Fault(where, f"Unsupported value: {json.dumps(field)}: supported values: {supported}")
        else:
            sentence = f"error converting fieldPath: field label not supported: {field}"
            yield Fault(where, f"Invalid value: {json.dumps(field)}: {sentence}")
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if origin.get(kind) is not None:
            name, key = origin[kind].get("name", ""), origin[kind]["key"]
            for sentence in subdomain_faults(name):
                yield Fault(f"{at}.{kind}.name", f"Invalid value: {json.dumps(name)}: {sentence}")
            if not key:
                yield Fault(f"{at}.{kind}.key", "Required value")
            elif not re.fullmatch(_KEY, key):
                sentence = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
                    f" (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '{_KEY}')"
                )
                yield Fault(f"{at}.{kind}.key", f"Invalid value: {json.dumps(key)}: {sentence}")


def _object_faults(name: str, at: str) -> Iterator[Fault]:
    if not name:
        yield Fault(at, "Required value")
        return
    for sentence in subdomain_faults(name):
        yield Fault(at, f"Invalid value: {json.dumps(name)}: {sentence}")
