# SPDX-License-Identifier: Apache-2.0
"""The environment of a container, in the words of a TrainingJob."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.manifests.convert.draft import CONTAINER
from kfp_volcano.volcano.manifests.convert.source import refuse

if TYPE_CHECKING:
    from kfp_volcano.volcano.manifests.convert.draft import Draft
    from kfp_volcano.volcano.manifests.convert.source import View

__all__ = ["read_environment"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\(([-._a-zA-Z0-9]+)\)")
_RESOURCE = re.compile(r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMG]i)")
_OURS = "KFP_VOLCANO_"


def read_environment(container: View, draft: Draft, *, override: bool = False) -> None:
    """Read `env` and `envFrom` of a container (core/v1 EnvVar, EnvFromSource) into a role.

    A TrainingJob's environment is a mapping, which is written in the order of its names, and `$(NAME)` in a value
    means a variable before it: a value that refers to a later one keeps its place in podPatch. With `override` a
    variable may be there already, and is replaced.
    """
    for variable in container.maps("env"):
        name = variable.peek("name")
        if not isinstance(name, str) or not name:
            refuse(variable.at("name"), "is missing")
        place = draft.place("env", name)
        if name.startswith(_OURS):
            variable.account.lost(variable.at(), f"names that begin with {_OURS} are set by kfp-volcano itself")
            _discard(variable)
        elif name in draft.env and not override:
            why = "is there twice: the last one counts, as in Kubernetes"
            variable.account.revise(place, variable.at(), place, why)
            draft.env[name] = _value(variable, place)
        elif _expressible(variable, name, draft):
            draft.env[name] = _value(variable, place)
        else:
            kept = {key: variable.any(key) for key in variable}
            draft.patch.append((*CONTAINER, "env"), kept, variable.at())
    for source in container.maps("envFrom"):
        _read_source(source, draft)


def _expressible(variable: View, name: str, draft: Draft) -> bool:
    """Whether a TrainingJob can say a variable."""
    value = variable.peek("value")
    earlier = [found for found in _REFERENCE.findall(value) if found in draft.env] if isinstance(value, str) else []
    if not _NAME.fullmatch(name) or any(found > name for found in earlier) or set(variable) - _VARIABLE:
        return False
    return "valueFrom" not in variable or _refers(variable.peek("valueFrom"))


def _refers(source: Any) -> bool:
    """Whether a TrainingJob has the kind of reference (core/v1 EnvVarSource), and all that it says."""
    if not isinstance(source, dict) or len(source) != 1 or not isinstance(next(iter(source.values())), dict):
        return False
    ((kind, reference),) = source.items()
    match kind:
        case "resourceFieldRef":  # a divisor is for another unit, a container's name for another container
            return set(reference) == {"resource"} and bool(_RESOURCE.fullmatch(str(reference["resource"])))
        case "fieldRef":
            return set(reference) <= {"fieldPath", "apiVersion"} and reference.get("apiVersion", "v1") == "v1"
        case "secretKeyRef" | "configMapKeyRef":
            return set(reference) <= {"name", "key", "optional"}
    return False


_VARIABLE = {"name", "value", "valueFrom"}


def _value(variable: View, place: object) -> Any:
    variable.account.kept(variable.at(), place)
    variable.text("name")
    if "valueFrom" not in variable:
        variable.any("valueFrom")
        return variable.text("value") or ""
    variable.any("value")
    source = variable.any("valueFrom")
    if not _refers(source):
        refuse(variable.at("valueFrom"), "cannot be said for a variable that is there twice", "say it once")
    ((kind, reference),) = source.items()
    return {kind: {key: part for key, part in reference.items() if key != "apiVersion"}}


def _discard(variable: View) -> None:
    for key in variable:
        variable.any(key)


def _read_source(source: View, draft: Draft) -> None:
    known = {"prefix", "secretRef", "configMapRef"}
    kinds = [key for key in ("secretRef", "configMapRef") if key in source]
    plain = len(kinds) == 1 and not set(source) - known
    if not plain or not isinstance(source.peek(kinds[0]), dict) or set(source.peek(kinds[0])) - {"name", "optional"}:
        kept = {key: source.any(key) for key in source}
        draft.patch.append((*CONTAINER, "envFrom"), kept, source.at())
        return
    entries = draft.parts.setdefault("envFrom", [])
    place = draft.place("envFrom", len(entries))
    entry: dict[str, Any] = {kinds[0]: dict(source.any(kinds[0], to=place))}
    prefix = source.text("prefix", to=place)
    entries.append({**entry, "prefix": prefix} if prefix else entry)
