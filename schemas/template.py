# SPDX-License-Identifier: Apache-2.0
"""A spec with holes: how values that only the run knows travel into a TrainingJob.

A KFP step takes a fixed set of inputs, so a spec travels as one JSON string in which each unknown value is a hole
`{"$value": i, "$type": T}` (and a text around such values `{"$join": [...]}`), beside one string that joins the
values. KFP replaces placeholders inside that string; as it is no JSON, quotes and braces in a value harm nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["SEPARATOR", "cast", "fill", "split"]

SEPARATOR = "\x1e"
"""Between joined values: the record separator of ASCII, for a backend's database may know no more than Latin-1."""

_TRUE = {"true": True, "false": False}


def split(
    spec: object, *, type_of: Callable[[object], str | None], pieces_of: Callable[[str], Sequence[object]]
) -> tuple[str, list[object]]:
    """The spec as JSON text with holes, and what fills them, in order.

    `type_of` gives the KFP type of a value that is not known yet (`NUMBER_INTEGER`, `STRING`, …), None of a known one;
    `pieces_of` cuts a text into known pieces and such values.
    """
    values: list[object] = []

    def walk(node: object) -> object:
        kind = type_of(node)
        if kind is not None:
            values.append(node)
            return {"$value": len(values) - 1, "$type": kind}
        if isinstance(node, str):
            pieces = pieces_of(node)
            if all(isinstance(piece, str) for piece in pieces):
                return node
            return {"$join": [piece if isinstance(piece, str) else walk(piece) for piece in pieces]}
        if isinstance(node, Mapping):
            return {str(key): walk(value) for key, value in node.items()}
        if isinstance(node, (list, tuple)):
            return [walk(value) for value in node]
        return node

    return json.dumps(walk(spec), ensure_ascii=False, sort_keys=True), values


def fill(template: str, joined: str) -> Any:
    """The spec with its holes filled. Raises SpecError for values that are not of their hole's type."""
    spec = json.loads(template)
    values = joined.split(SEPARATOR)
    problems: list[Problem] = []

    def walk(node: Any, path: str) -> Any:
        if isinstance(node, dict) and "$value" in node:
            return _value(node, values, path, problems)
        if isinstance(node, dict) and "$join" in node:
            return "".join(str(walk(piece, path)) for piece in node["$join"])
        if isinstance(node, dict):
            return {key: walk(value, f"{path}.{key}" if path else key) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value, f"{path}[{index}]") for index, value in enumerate(node)]
        return node

    filled = walk(spec, "")
    if problems:
        raise SpecError(problems)
    return filled


def _value(hole: Mapping[str, Any], values: list[str], path: str, problems: list[Problem]) -> Any:
    index, kind = hole["$value"], hole["$type"]
    if index >= len(values):
        problems.append(Problem(path or "spec", "no value arrived for it", "pass each value once, in order"))
        return None
    try:
        return cast(values[index], kind)
    except ValueError:
        problems.append(Problem(path or "spec", f"{values[index]!r} is not of type {kind}"))
        return None


def cast(text: str, kind: str) -> Any:
    """A value as KFP writes it into a string, as its type. The local runner writes integers as `4.0`."""
    if kind == "NUMBER_INTEGER":
        with suppress(ValueError):
            return int(text)  # exact, where a double would not be
        number = float(text)
        if not number.is_integer():
            raise ValueError(text)
        return int(number)
    if kind == "NUMBER_DOUBLE":
        return float(text)
    if kind == "BOOLEAN":
        if text.lower() not in _TRUE:
            raise ValueError(text)
        return _TRUE[text.lower()]
    if kind in {"STRUCT", "LIST"}:
        return json.loads(text)
    return text
