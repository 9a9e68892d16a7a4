# SPDX-License-Identifier: Apache-2.0
"""Typed values to their form on the wire and back, led by the types themselves.

A field is the key of its name in camelCase; a name that ends in `_s` is a duration and loses the ending. Metadata of a
field says what differs: `{"key": …}` another key, `{"codec": (read, write)}` another form. What is None, empty or
False is not written (empty and False are where the default is None); everything else is, defaults too, so that a spec
kept by one version means the same to the next.
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kfp_volcano.schemas.quantities import duration, duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["plain", "sorted_deep", "typed", "wire_key"]

T = TypeVar("T")


class _Field(NamedTuple):
    name: str
    key: str
    silent: object
    """The value that is not written."""
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


def typed(kind: type[T], value: Mapping[str, Any], **given: Any) -> T:
    """The value of a dataclass in a mapping that was found to be right; `given` fields are no part of the mapping."""
    found = {each.name: each.read(value[each.key]) for each in _fields(typing.cast("Any", kind)) if each.key in value}
    return kind(**given, **found)


def plain(value: Any) -> dict[str, Any]:
    """The mapping of a dataclass's value, in the order of its fields."""
    written = {}
    for each in _fields(typing.cast("Any", type(value))):
        part = getattr(value, each.name)
        if part is each.silent:
            continue
        part = each.write(part)
        if each.silent is None or part not in ({}, [], ""):
            written[each.key] = part
    return written


def wire_key(name: str, metadata: Mapping[str, Any]) -> str:
    """The key of a field on the wire."""
    first, *rest = name.removesuffix("_s").split("_")
    return str(metadata.get("key") or first + "".join(map(str.capitalize, rest)))


def sorted_deep(value: Any) -> Any:
    """A copy with the keys of every mapping in order: equal values become equal texts."""
    if isinstance(value, dict):
        return {key: sorted_deep(value[key]) for key in sorted(value)}
    return [sorted_deep(item) for item in value] if isinstance(value, list) else value


@cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(kind)
    found = []
    for each in fields(kind):
        codec = each.metadata.get("codec")
        if codec is None and each.name.endswith("_s"):
            codec = (duration, duration_text)
        read, write = codec or _codec(hints[each.name])
        read = _or_none(read) if types.NoneType in typing.get_args(hints[each.name]) else read
        silent = each.default if each.default is None or each.default is False else MISSING
        found.append(_Field(each.name, wire_key(each.name, each.metadata), silent, read, write))
    return tuple(found)


def _codec(hint: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How values of a type are read and written."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if is_dataclass(origin):
        return partial(typed, typing.cast("type[Any]", origin)), plain
    if origin is tuple:
        read, write = _codec(arguments[0])
        return (lambda items: tuple(map(read, items))), (lambda items: list(map(write, items)))
    if origin is dict:
        read, write = _codec(arguments[1])
        return (
            lambda items: {key: read(items[key]) for key in sorted(items)},
            lambda items: {key: write(items[key]) for key in sorted(items)},
        )
    if hint is Any:
        return sorted_deep, sorted_deep
    return (int if origin is int else _same), _same


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _same(value: Any) -> Any:
    return value
