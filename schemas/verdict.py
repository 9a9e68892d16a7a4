# SPDX-License-Identifier: Apache-2.0
"""Yes or no, quickly: does a value fit its schema? A schema becomes functions once, and values pass through them.

It answers as `structure.deviations` would, which says where and why, and takes a hundred times as long: most specs are
right. It knows the keywords that this project's schemas use, and refuses a schema that has another.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check: TypeAlias = Callable[[Any], bool]

__all__ = ["compiled"]

_SILENT = {"$schema", "$id", "$defs", "title", "description", "default", "examples"}
_KNOWN = _SILENT | {
    *("$ref", "type", "enum", "const", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum"),
    *("items", "prefixItems", "minItems", "maxItems"),
    *("properties", "required", "additionalProperties", "propertyNames", "minProperties"),
}


def compiled(schema: Mapping[str, Any], unknown: type) -> Check:
    """The verdict of a schema (draft 2020-12, local references) on values; one of type `unknown` fits anything."""
    return _Compiler(schema, unknown).check(schema)


class _Compiler:
    def __init__(self, root: Mapping[str, Any], unknown: type) -> None:
        self._root = root
        self._unknown = unknown
        self._known: dict[str, Check] = {}

    def check(self, rule: Mapping[str, Any] | bool) -> Check:  # noqa: FBT001  # a schema may be true or false
        """One function for all that a rule says."""
        if isinstance(rule, bool):
            return lambda _: rule
        parts = [self._reference(rule["$ref"])] if "$ref" in rule else []
        odd = rule.keys() - _KNOWN
        if odd:
            raise NotImplementedError(f"keywords {', '.join(sorted(odd))}")
        own = {key: value for key, value in rule.items() if key not in _SILENT and key != "$ref"}
        if own:
            parts.append(self._own(own))
        return parts[0] if len(parts) == 1 else lambda value: all(part(value) for part in parts)

    def _reference(self, reference: str) -> Check:
        name = reference.removeprefix("#/$defs/")
        if name not in self._known:
            # A part may refer to itself, as queues hold queues: until it is known it is looked up when it is asked.
            self._known[name] = lambda value: self._known[name](value)  # noqa: PLW0108  # it is another by then
            self._known[name] = self.check(self._root["$defs"][name])
        return self._known[name]

    def _own(self, rule: Mapping[str, Any]) -> Check:
        wanted = rule.get("type")
        types = (wanted,) if isinstance(wanted, str) else tuple(wanted or ())
        allowed = rule.get("enum", [rule["const"]] if "const" in rule else None)
        number = _number_check(rule)
        checks: dict[type, Check] = {
            str: _text_check(rule),
            int: number,
            float: number,
            list: self._list_check(rule),
            dict: self._mapping_check(rule),
        }
        unknown = self._unknown

        def check(value: Any) -> bool:
            kind = type(value)
            if kind is unknown:
                return True
            if types and not _is_of(value, kind, types):
                return False
            if allowed is not None and not any(value == each and kind is type(each) for each in allowed):
                return False
            about = checks.get(kind)
            return about is None or about(value)

        return check

    def _list_check(self, rule: Mapping[str, Any]) -> Check:
        first = [self.check(each) for each in rule.get("prefixItems", ())]
        rest = self.check(rule.get("items", True))
        least, most = rule.get("minItems", 0), rule.get("maxItems", float("inf"))

        def check(value: list[Any]) -> bool:
            return (
                least <= len(value) <= most
                and all(each(item) for each, item in zip(first, value, strict=False))
                and all(map(rest, value[len(first) :]))
            )

        return check

    def _mapping_check(self, rule: Mapping[str, Any]) -> Check:
        properties = {key: self.check(part) for key, part in rule.get("properties", {}).items()}
        others = self.check(rule.get("additionalProperties", True))
        names = self.check(rule.get("propertyNames", True))
        required, least = rule.get("required", ()), rule.get("minProperties", 0)

        def check(value: dict[str, Any]) -> bool:
            return (
                len(value) >= least
                and all(key in value for key in required)
                and all(names(key) and properties.get(key, others)(part) for key, part in value.items())
            )

        return check


def _is_of(value: Any, kind: type, types: tuple[str, ...]) -> bool:
    if kind is float:
        return "number" in types or ("integer" in types and value.is_integer())
    if kind is int:
        return "integer" in types or "number" in types
    return _NAMES.get(kind, "") in types


_NAMES = {str: "string", dict: "object", list: "array", bool: "boolean", type(None): "null"}


def _text_check(rule: Mapping[str, Any]) -> Check:
    matches = re.compile(rule["pattern"]).fullmatch if "pattern" in rule else None
    least, most = rule.get("minLength", 0), rule.get("maxLength", float("inf"))
    return lambda value: least <= len(value) <= most and (matches is None or matches(value) is not None)


def _number_check(rule: Mapping[str, Any]) -> Check:
    least, most = rule.get("minimum", float("-inf")), rule.get("maximum", float("inf"))
    above = rule.get("exclusiveMinimum")
    return lambda value: least <= value <= most and (above is None or value > above)
