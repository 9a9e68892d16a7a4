# SPDX-License-Identifier: Apache-2.0
"""Values as a JSON Schema wants them, values that it does not want, and where in a document they would stand.

It reads what this project's schemas and the structural schemas of CRDs use of the language. Whatever is added to such
a schema is covered from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from strategies.texts import hostile, near_misses

__all__ = [
    "ANY",
    "Field",
    "Path",
    "Place",
    "Schema",
    "broken",
    "follow",
    "free_keys",
    "keys",
    "places",
    "texts",
    "values",
]

Path = tuple[str | int, ...]
Field = tuple[str, ...]
"""A path in a schema: `ANY` stands for a free key and for an entry of a list."""
ANY = "*"
Schema = Mapping[str, Any]

_ANY_NAME = r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?"
_WORD = st.from_regex(_ANY_NAME, fullmatch=True)
_QUANTITIES = st.one_of(
    st.integers(0, 64),
    st.sampled_from(["1", "500m", "2Gi", "1.5", "100k", "0", "1e3", "12E", "0.5Ki", "+3", ".5", "7n", "3u"]),
)
_WRONG = (
    *(None, True, False, 0, 1, -1, 2.0, 1.5, -0.5, 1e300, "", "text", "1", "-1", [], [1], ["a"], [None], {}, {"a": 1}),
    *({"a": None}, [[]], 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1),
)
"""Values of each JSON type and of the sizes at which a program's types end."""


def follow(rule: Schema, root: Schema) -> Schema:
    """A part of a schema with its local references followed."""
    while "$ref" in rule:
        rule = {
            **root["$defs"][rule["$ref"].removeprefix("#/$defs/")],
            **{k: v for k, v in rule.items() if k != "$ref"},
        }
    return rule


def values(rule: Schema, root: Schema, depth: int = 2) -> st.SearchStrategy[Any]:
    """Values that `rule` allows, mostly: rules between fields, and those of other languages, it does not know.

    So many levels have fields that may be absent; deeper ones have only what they need.
    """
    rule = follow(rule, root)
    if "const" in rule:
        return st.just(rule["const"])
    if "enum" in rule:
        return st.sampled_from(list(rule["enum"]))
    if rule.get("x-kubernetes-int-or-string"):
        return _QUANTITIES
    for choice in ("oneOf", "anyOf"):
        if choice in rule:
            return st.one_of(
                [values({**_without(rule, choice), **follow(each, root)}, root, depth) for each in rule[choice]]
            )
    wanted = rule.get("type", "object" if "properties" in rule else "string")
    typed = st.one_of([_typed(each, rule, root, depth) for each in ([wanted] if isinstance(wanted, str) else wanted)])
    return st.one_of(st.sampled_from(list(rule["examples"])), typed) if rule.get("examples") else typed


def broken(rule: Schema, root: Schema) -> st.SearchStrategy[Any]:
    """Values that `rule` mostly forbids: of other types, beyond its bounds, hostile, or wrong by a little."""
    rule = follow(rule, root)
    bounds = [
        rule[key] + off for key in ("minimum", "maximum", "exclusiveMinimum") if key in rule for off in (-1, 0, 1)
    ]
    lengths = ["a" * (rule["maxLength"] + off) for off in (0, 1)] if "maxLength" in rule else []
    good = values(rule, root).map(str)
    choices = [st.sampled_from(_WRONG), hostile()]
    if bounds or lengths:
        choices += [st.sampled_from([*bounds, *lengths])] * 2
    if _takes_text(rule):
        choices += [good.flatmap(lambda text: st.sampled_from(near_misses(text)))] * 2
    return st.one_of(choices)


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere in a document, whether something is there or could be."""

    field: Field
    """What it is in the schema."""
    path: Path
    rule: Schema
    """What the schema says about it."""


def places(root: Schema, document: Any) -> Iterator[Place]:
    """Every place in a document that a schema knows; where keys are free, one more beside those that are there."""
    yield from _everywhere(follow(root, root), document, root, Place((), (), follow(root, root)))


def texts(root: Schema, document: Any) -> Iterator[Path]:
    """Every place in a document where a text is or could be."""
    return (place.path for place in places(root, document) if _takes_text(place.rule))


def keys(root: Schema, document: Any) -> Iterator[tuple[Path, Schema]]:
    """Every mapping in a document whose keys are free, and what its values have to be."""
    for place in places(root, document):
        if isinstance(place.rule.get("additionalProperties"), Mapping):
            yield place.path, follow(place.rule["additionalProperties"], root)


def free_keys(rule: Schema, root: Schema) -> Schema:
    """What a schema says about the keys of a mapping."""
    return follow(rule.get("propertyNames", {"type": "string", "pattern": _ANY_NAME}), root)


def _everywhere(rule: Schema, value: Any, root: Schema, at: Place, above: tuple[Any, ...] = ()) -> Iterator[Place]:
    yield at
    properties = rule.get("properties")
    if value is None and any(properties is each for each in above):
        return  # a rule that holds itself, as queues hold queues: once is enough
    further = above if properties is None else (*above, properties)
    for part, key, child, there in _children(rule, value):
        known = follow(child, root)
        yield from _everywhere(known, there, root, Place((*at.field, part), (*at.path, key), known), further)


def _children(rule: Schema, value: Any) -> Iterator[tuple[str, str | int, Schema, Any]]:
    """The ways on from a place: part of the field, key, rule, value there."""
    there = value if isinstance(value, dict) else {}
    properties = rule.get("properties", {})
    for key, child in properties.items():
        yield key, key, child, there.get(key)
    if isinstance(rule.get("additionalProperties"), Mapping):
        for key in {**there, "name": None}:
            if key not in properties:
                yield ANY, key, rule["additionalProperties"], there.get(key)
    if "items" in rule or "prefixItems" in rule:
        items = value if isinstance(value, list) else []
        first = rule.get("prefixItems", [])
        for index in range(len(items) + 1):
            child = first[index] if index < len(first) else rule.get("items", {})
            yield ANY, index, child, items[index] if index < len(items) else None


def _typed(kind: str, rule: Schema, root: Schema, depth: int) -> st.SearchStrategy[Any]:
    least, most = int(rule.get("minimum", 0)), int(rule.get("maximum", _LARGEST))
    made: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "object": lambda: _objects(rule, root, depth - 1),
        "array": lambda: _arrays(rule, root, depth - 1),
        "integer": lambda: st.integers(least, max(least, min(most, _LARGEST))),
        "number": lambda: st.integers(max(1, least), max(1, least, min(most, 30 * _LARGEST))),
        "boolean": st.booleans,
        "null": st.none,
        "string": lambda: _texts(rule.get("pattern"), rule.get("minLength", 0), rule.get("maxLength", 200)),
    }
    return made[kind]()


_LARGEST = 20
"""Larger numbers cost time where each counts something, and show nothing new."""


@cache
def _texts(pattern: str | None, shortest: int, longest: int) -> st.SearchStrategy[str]:
    if pattern is None:
        return st.one_of(_WORD, _WORD, hostile()).filter(lambda text: shortest <= len(text) <= longest)
    fitting = st.from_regex(pattern.removeprefix("^").removesuffix("$"), fullmatch=True, alphabet=_ASCII)
    return fitting.filter(lambda text: shortest <= len(text) <= longest)


_ASCII = st.characters(min_codepoint=0x21, max_codepoint=0x7E)


def _objects(rule: Schema, root: Schema, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    properties, needed = rule.get("properties", {}), set(rule.get("required", ()))
    optional = properties.keys() - needed if depth > 0 and len(properties) < _MANY else ()
    fixed = st.fixed_dictionaries(
        {key: values(properties[key], root, depth) for key in properties if key in needed},
        optional={key: values(properties[key], root, depth) for key in sorted(optional)},
    )
    extra = rule.get("additionalProperties")
    if not isinstance(extra, Mapping):
        return fixed
    keys = values(rule.get("propertyNames", {"type": "string", "pattern": _ANY_NAME}), root)
    more = st.dictionaries(keys, values(extra, root, depth), max_size=2)
    return st.tuples(more, fixed).map(lambda pair: {**pair[0], **pair[1]})


_MANY = 15
"""An object of so many properties gets only what it needs; edits give it others."""


def _arrays(rule: Schema, root: Schema, depth: int) -> st.SearchStrategy[list[Any]]:
    first = [values(each, root, depth) for each in rule.get("prefixItems", ())]
    least = max(0, rule.get("minItems", 0) - len(first))
    rest = st.lists(values(rule.get("items", {}), root, depth), min_size=least, max_size=max(least, depth + 1))
    return st.tuples(st.tuples(*first).map(list), rest).map(lambda parts: [*parts[0], *parts[1]])


def _takes_text(rule: Schema) -> bool:
    return "pattern" in rule or "string" in rule.get("type", ())


def _without(rule: Schema, key: str) -> dict[str, Any]:
    return {name: value for name, value in rule.items() if name != key}
