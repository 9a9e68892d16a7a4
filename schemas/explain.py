# SPDX-License-Identifier: Apache-2.0
"""The documentation of a field, from its kind's published JSON Schema, as `kubectl explain` gives it."""

from __future__ import annotations

import difflib
import json
import textwrap
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.structure import child_rule, load_schema, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kfp_volcano.schemas.structure import Schema

__all__ = ["explain", "fields_below", "schema_text"]

_KINDS = {
    "TrainingJob": "training-job.v1",
    "QueueTree": "queue-tree.v1",
    "GPUPools": "gpu-pools.v1",
    "Policy": "policy.v1",
    "ResourceProfiles": "resource-profiles.v1",
    "Scenario": "scenario.v1",
    "HorizontalPodAutoscaler": "horizontal-pod-autoscaler.v2",
}
"""The kinds of documents that people write, and their schemas."""

_WIDTH = 100
_INDENT = "  "
_TYPES = {"object": "mapping", "array": "list", "string": "text", "integer": "whole number", "boolean": "true or false"}
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "minItems": "entries, at least",
    "maxItems": "entries, at most",
    "maxLength": "characters, at most",
}


def explain(field: str) -> str:
    """The documentation of a field by its dotted path, e.g. `spec.roles.worker.resources`; of the whole for "".

    It may begin with a kind, e.g. `QueueTree.spec.queues`, and is a TrainingJob's where it does not. The name of a
    role, a volume or a label stands where the path has one; any will do. Raises SpecError for a path that leads
    nowhere, naming what is there.
    """
    kind, path = _split(field)
    root = load_schema(_KINDS[kind])
    rule, owner, last = _find(root, path)
    required = " (required)" if last in owner.get("required", ()) else ""
    lines = [
        f"FIELD: {field or kind} <{_type(rule, root)}>{required}",
        "",
        *textwrap.wrap(str(rule.get("description", "")), _WIDTH),
    ]
    for title, part in _facts(rule, root):
        lines += ["", f"{title}:", *(f"{_INDENT}{line}" for line in part)]
    return "\n".join(lines) + "\n"


def fields_below(field: str) -> list[str]:
    """The names that may follow a path, without its dot; kinds too at the beginning. Raises SpecError as `explain`."""
    kind, path = _split(field)
    root = load_schema(_KINDS[kind])
    rule, _, _ = _find(root, path)
    return [*([] if field else _KINDS), *_inside(rule, root).get("properties", {})]


def schema_text(kind: str) -> str:
    """The published JSON Schema of a kind as JSON. Raises SpecError where there is none."""
    if kind not in _KINDS:
        raise SpecError(f"is no kind of document ({', '.join(_KINDS)})", source=kind)
    return json.dumps(load_schema(_KINDS[kind]), indent=2) + "\n"


def _split(field: str) -> tuple[str, list[str]]:
    """The kind that a path begins with, or TrainingJob, and the keys below it."""
    path = [part for part in field.split(".") if part]
    return (path.pop(0) if path and path[0] in _KINDS else "TrainingJob"), path


def _find(root: Schema, path: list[str]) -> tuple[Schema, Schema, str]:
    """The rule at a path, the rule of the mapping it stands in, and its key there."""
    rule, owner, last = root, root, ""
    for depth, key in enumerate(path):
        inner = _inside(rule, root)
        known = list(inner.get("properties", {}))
        found = child_rule(inner, key, root)
        if not found:
            close = difflib.get_close_matches(key, known, n=1)
            remedy = f"did you mean {close[0]}?" if close else f"there is {', '.join(known) or 'nothing below it'}"
            raise SpecError(f"no such field ({remedy})", source=".".join(path[: depth + 1]))
        rule, owner, last = found, inner, key
    return rule, owner, last


def _inside(rule: Schema, root: Schema) -> Schema:
    """What a path goes on in: a list's entries, for a list."""
    inner = resolve(rule.get("items", {}), root)
    return inner if "properties" in inner and "properties" not in rule else rule


def _type(rule: Schema, root: Schema) -> str:
    kinds = rule.get("type", "text")
    named = [_TYPES.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    entries = resolve(rule.get("items", {}), root).get("type")
    if entries and isinstance(entries, str):
        named = [f"list of {_TYPES.get(entries, entries)}" if name == "list" else name for name in named]
    if not rule.get("properties") and isinstance(rule.get("additionalProperties"), dict):
        named = ["mapping by name" if name == "mapping" else name for name in named]
    return " or ".join(named)


def _facts(rule: Schema, root: Schema) -> Iterator[tuple[str, list[str]]]:
    if "enum" in rule:
        yield "VALUES", [", ".join(map(str, rule["enum"]))]
    if "const" in rule:
        yield "VALUE", [str(rule["const"])]
    bounds = [f"{words} {rule[key]}" for key, words in _BOUNDS.items() if key in rule]
    if bounds:
        yield "BOUNDS", bounds
    if rule.get("default") not in (None, {}, []):
        yield "DEFAULT", [_shown(rule["default"])]
    if rule.get("examples"):
        yield "EXAMPLES", [_shown(example) for example in rule["examples"]]
    inner = _inside(rule, root)
    if not inner.get("properties") and isinstance(inner.get("additionalProperties"), dict):
        inner = resolve(inner["additionalProperties"], root)
    if inner.get("properties"):
        yield "FIELDS", [line for key in inner["properties"] for line in _field(key, inner, root)]


def _field(key: str, owner: Mapping[str, Any], root: Schema) -> list[str]:
    rule = child_rule(owner, key, root)
    required = " (required)" if key in owner.get("required", ()) else ""
    text = textwrap.wrap(str(rule.get("description", "")).split(". ")[0].rstrip(".") + ".", _WIDTH - 4)
    return [f"{key} <{_type(rule, root)}>{required}", *(f"{_INDENT}{line}" for line in text)]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
