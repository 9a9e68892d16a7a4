# SPDX-License-Identifier: Apache-2.0
"""A CRD's structural schema at work, as the API server applies it to a custom resource.

Fields the schema does not know are dropped, nulls taken out, defaults filled in, and what is left is checked. The
schemas in `crds/` are those of Volcano 1.15.1's CRDs, without their descriptions.

Sources: k8s.io/apiextensions-apiserver 0.35 (pkg/apiserver/schema/{pruning,defaulting,listtype},
pkg/apiserver/validation) and k8s.io/kube-openapi (pkg/validation/validate). Messages are theirs.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.volcano.model.objects import Manifest

__all__ = ["GROUPS", "Fault", "faults", "json_type", "properties_of", "settle"]

_Schema: TypeAlias = "Mapping[str, Any]"

GROUPS = {"Job": "batch.volcano.sh", "PodGroup": "scheduling.volcano.sh", "Queue": "scheduling.volcano.sh"}
"""The API groups of the kinds that have a schema here."""

_META = frozenset({"apiVersion", "kind", "metadata"})
_LARGEST_EXACT = 2**53 - 1
_INT64 = range(-(2**63), 2**63)


class Fault(NamedTuple):
    """One field that is not as its schema says."""

    field: str
    """As the API server writes it: `spec.tasks[0].replicas`."""
    message: str
    wrong_type: bool = False
    """Whether it is not even of the right type, so that no typed program could read the object."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


@cache
def _schema(kind: str) -> _Schema:
    file = resources.files("kfp_volcano.volcano.model").joinpath("crds", f"{kind.lower()}.json")
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def properties_of(kind: str) -> _Schema:
    """The schemas of a kind's own fields, `spec` above all."""
    return {name: rule for name, rule in _schema(kind)["properties"].items() if name not in _META}


def settle(manifest: Manifest) -> Manifest:
    """A copy with what the schema does not know dropped and what it has defaults for filled in."""
    properties = _schema(manifest["kind"])["properties"]
    return {
        name: _settled(value, properties[name]) if name in properties.keys() - _META else value
        for name, value in manifest.items()
        if name in _META or name == "status" or (name in properties and value is not None)
    }


def _settled(value: Any, rule: _Schema) -> Any:
    if isinstance(value, list):
        return [_settled(item, rule.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    properties, others = rule.get("properties", {}), rule.get("additionalProperties")
    settled = {}
    for name, child in value.items():
        inner = properties.get(name, others)
        if inner is None or (child is None and not inner.get("nullable")):
            continue
        settled[name] = _settled(child, inner)
    for name, inner in properties.items():
        if "default" in inner and name not in settled:
            settled[name] = inner["default"]
    return settled


def faults(manifest: Manifest) -> list[Fault]:
    """What the schema refuses in a settled manifest."""
    properties = properties_of(manifest["kind"])
    return [
        fault for name, rule in properties.items() if name in manifest for fault in _faults(manifest[name], rule, name)
    ]


def _faults(value: Any, rule: _Schema, at: str) -> Iterator[Fault]:
    wanted = ("integer", "string") if rule.get("x-kubernetes-int-or-string") else (rule["type"],)
    found = json_type(value)
    whole = isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST_EXACT
    if found not in wanted and not (whole and "integer" in wanted) and not (found == "integer" and "number" in wanted):
        text = json.dumps(found)
        yield Fault(
            at, f"Invalid value: {text}: {at} in body must be of type {','.join(wanted)}: {text}", wrong_type=True
        )
    elif isinstance(value, dict):
        yield from _in_object(value, rule, at)
    elif isinstance(value, list):
        yield from _in_list(value, rule, at)
    elif isinstance(value, str):
        yield from _in_text(value, rule, at)
    elif found in {"integer", "number"}:
        yield from _in_number(value, rule, at)


def _in_object(value: Mapping[str, Any], rule: _Schema, at: str) -> Iterator[Fault]:
    properties, others = rule.get("properties", {}), rule.get("additionalProperties")
    for name, child in value.items():
        inner = properties.get(name, others)
        if inner is not None:
            yield from _faults(child, inner, f"{at}.{name}")
    for name in rule.get("required", ()):
        if name not in value:
            yield Fault(f"{at}.{name}", "Required value")


def _in_list(value: list[Any], rule: _Schema, at: str) -> Iterator[Fault]:
    least = rule.get("minItems", 0)
    if len(value) < least:
        yield Fault(at, f"Invalid value: {len(value)}: {at} in body should have at least {least} items")
    for index, item in enumerate(value):
        yield from _faults(item, rule["items"], f"{at}[{index}]")
    keys = rule.get("x-kubernetes-list-map-keys")
    if keys:
        seen: list[Any] = []
        for index, item in enumerate(value):
            key = {name: item[name] for name in keys if name in item} if isinstance(item, dict) else item
            if key in seen:
                yield Fault(f"{at}[{index}]", f"Duplicate value: {json.dumps(key, separators=(',', ':'))}")
            seen.append(key)


def _in_text(value: str, rule: _Schema, at: str) -> Iterator[Fault]:
    if len(value) > rule.get("maxLength", len(value)):
        yield Fault(at, f"Too long: may not be more than {rule['maxLength']} bytes")
    elif len(value) < rule.get("minLength", 0):
        yield Fault(
            at, f"Invalid value: {_quoted(value)}: {at} in body should be at least {rule['minLength']} chars long"
        )
    elif "pattern" in rule and not _pattern(rule["pattern"]).search(value):
        yield Fault(at, f"Invalid value: {_quoted(value)}: {at} in body should match '{rule['pattern']}'")
    if "enum" in rule and value not in rule["enum"]:
        supported = ", ".join(map(_quoted, rule["enum"]))
        yield Fault(at, f"Unsupported value: {_quoted(value)}: supported values: {supported}")


def _in_number(value: float, rule: _Schema, at: str) -> Iterator[Fault]:
    for keyword, beyond, words in (("minimum", -1, "greater"), ("maximum", 1, "less")):
        bound = rule.get(keyword)
        if bound is not None and (value - bound) * beyond > 0:
            yield Fault(at, f"Invalid value: {value}: {at} in body should be {words} than or equal to {bound}")


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    # In Go `$` matches at the end only; in Python also before a final line break.
    return re.compile(f"{pattern.removesuffix('$')}\\Z" if pattern.endswith("$") else pattern)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def json_type(value: Any) -> str:
    """What JSON Schema calls a value's type."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):  # what does not fit 64 bits is read as a float
        return "integer" if value in _INT64 else "number"
    return _TYPES[type(value)]


_TYPES = {type(None): "null", float: "number", str: "string", list: "array", dict: "object"}
