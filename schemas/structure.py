# SPDX-License-Identifier: Apache-2.0
"""Is a value built as its JSON Schema says? The schemas, and a validator to which an `Unknown` is right everywhere."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from kfp_volcano.schemas.verdict import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Deviation",
    "Finding",
    "Path",
    "Schema",
    "Unknown",
    "all_deviations",
    "child_rule",
    "deviations",
    "is_known",
    "load_schema",
    "normalise",
    "resolve",
]

Path: TypeAlias = "tuple[str | int, ...]"
"""Where in a document: keys and list indexes from its root."""

Schema: TypeAlias = "Mapping[str, Any]"
"""A JSON Schema (draft 2020-12), or a part of one; its references are local, its patterns anchored at both ends."""


class Unknown:
    """Stands in a spec for a value that only the run will know, e.g. a pipeline parameter: right at any place."""


def is_known(value: Any) -> bool:
    """Whether nothing in a value is left to the run."""
    if isinstance(value, Unknown):
        return False
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(is_known, children))


class Finding(NamedTuple):
    """Something that is wrong, and where."""

    path: Path
    message: str
    remedy: str = ""


class Deviation(NamedTuple):
    """One keyword of a schema that a value breaks."""

    path: Path
    """Of the value; of the key, where the key is what is wrong."""
    keyword: str
    limit: Any
    """What the schema gives the keyword."""
    found: Any
    rule: Schema
    """The part of the schema the keyword stands in."""
    message: str
    """The validator's own words."""


@cache
def load_schema(name: str) -> Schema:
    """A published schema by name, e.g. `training-job.v1`."""
    file = resources.files("kfp_volcano.schemas").joinpath("json", f"{name}.schema.json")
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def resolve(rule: Schema, root: Schema) -> Schema:
    """A part of a schema with its `$ref` followed; what stands beside the reference wins."""
    if "$ref" not in rule:
        return rule
    return {**root["$defs"][rule["$ref"].removeprefix("#/$defs/")], **rule}


def child_rule(rule: Schema, key: str, root: Schema) -> Schema:
    """What a schema of a mapping says about the value under `key`; nothing where it does not say."""
    child = rule.get("properties", {}).get(key, rule.get("additionalProperties"))
    return resolve(child, root) if isinstance(child, dict) else {}


def normalise(value: Any, schema: Schema, *, lenient_numbers: bool = False) -> tuple[Any, list[Finding]]:
    """A copy of `value` in JSON's own types, and what in it JSON cannot hold or no program's argument can carry.

    With `lenient_numbers`, text that spells a number becomes one wherever `schema` wants a number: values that came
    through a pipeline's parameters arrive as text. What is nested too deeply, or would be too large (aliases in YAML
    make a lot of a little), is one finding about the whole, which is `Unknown` then.
    """
    copy = _Copy(schema, lenient_numbers=lenient_numbers)
    try:
        return copy.of(value, schema, ()), copy.findings
    except _Excess as excess:
        return Unknown(), [Finding((), *excess.args)]


class _Copy:
    """A copy in the making."""

    def __init__(self, schema: Schema, *, lenient_numbers: bool) -> None:
        self.findings: list[Finding] = []
        self._schema = schema
        self._lenient_numbers = lenient_numbers
        self._count = 0

    def of(self, item: Any, rule: Schema, path: Path) -> Any:
        """The copy of a part, of which the schema says `rule`."""
        self._count += 1
        if len(path) > _DEEPEST:
            raise _Excess("is nested too deeply", f"at most {_DEEPEST} levels")
        if self._count > _MOST_VALUES:
            raise _Excess("holds too many values", f"at most {_MOST_VALUES}, with YAML's aliases written out")
        match item:  # the most frequent kinds first: most values are texts
            case str():
                if _UNUSABLE.search(item):
                    self._tell(path, "holds a NUL or a lone surrogate, which no program can be given")
                return _number(item, rule) if self._lenient_numbers else item
            case Mapping():
                return self._mapping(item, rule, path)
            case bytes():
                self._tell(path, "is binary", "write it as text")
            case Sequence():
                inner = resolve(rule.get("items", {}), self._schema)
                return [self.of(child, inner, (*path, index)) for index, child in enumerate(item)]
            case float() if not math.isfinite(item):
                self._tell(path, f"{item} is not a usable number")
            case None | bool() | int() | float() | Unknown():
                return item
            case _:
                self._tell(path, f"is a {type(item).__name__}", "write it as text, in quotes")
        return Unknown()

    def _mapping(self, item: Mapping[Any, Any], rule: Schema, path: Path) -> dict[str, Any]:
        for key in item:
            if not isinstance(key, str):
                self._tell((*path, str(key)), "is a key, but not text", "put it in quotes")
        return {
            str(key): self.of(child, child_rule(rule, str(key), self._schema), (*path, str(key)))
            for key, child in item.items()
        }

    def _tell(self, path: Path, message: str, remedy: str = "") -> None:
        self.findings.append(Finding(path, message, remedy))


class _Excess(Exception):  # noqa: N818  # never leaves this module
    """A value is more than anybody means."""


_DEEPEST = 100
_MOST_VALUES = 500_000
_UNUSABLE = re.compile(r"[\x00\ud800-\udfff]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,18}\.[0-9]{1,18}")


def _number(text: str, rule: Schema) -> str | float:
    """The number that `text` spells, where the schema wants one."""
    wanted = rule.get("type", ())
    if "integer" in wanted or "number" in wanted:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _DECIMAL.fullmatch(text):
            return float(text)
    return text


def deviations(value: Any, schema: Schema) -> Iterator[Deviation]:
    """Where a normalised value is not as its schema says."""
    if not _fits(schema)(value):
        yield from all_deviations(value, schema)


def _fits(schema: Schema) -> Callable[[Any], bool]:
    key = id(schema)
    if key not in _verdicts:
        _verdicts[key] = (schema, compiled(schema, Unknown))
    return _verdicts[key][1]


_verdicts: dict[int, tuple[Schema, Callable[[Any], bool]]] = {}
"""By identity of the schema, which is kept with it: schemas are made once and never changed."""


def all_deviations(value: Any, schema: Schema) -> Iterator[Deviation]:
    """The same without the short way for a value that fits."""
    for error in _Validator(schema).iter_errors(value):
        keyword = str(error.validator)
        path = (*error.absolute_path, *([error.instance] if "propertyNames" in error.absolute_schema_path else []))
        rule = resolve(error.schema, schema)
        yield Deviation(path, keyword, error.validator_value, error.instance, rule, error.message)


def _tolerant(keyword: Callable[..., Any]) -> Callable[..., Iterator[ValidationError]]:
    def run(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, Unknown):
            yield from keyword(validator, rule, instance, schema) or ()

    return run


def _whole(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    # jsonschema searches, and in Python `$` also matches before a final newline; in JSON Schema it does not.
    if isinstance(instance, str) and not re.fullmatch(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _others(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # jsonschema goes through a set of the keys: what is wrong would be told in another order by each process.
    if not isinstance(instance, dict) or not isinstance(rule, dict):
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, rule, instance, schema) or ()
        return
    for key, value in instance.items():
        if key not in schema.get("properties", {}):
            yield from validator.descend(value, rule, path=key)


_KEYWORDS = {**Draft202012Validator.VALIDATORS, "pattern": _whole, "additionalProperties": _others}
_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {name: _tolerant(keyword) for name, keyword in _KEYWORDS.items()}
)
