# SPDX-License-Identifier: Apache-2.0
"""Any value of dataclasses to JSON and back, exactly: for logs that programs read again.

Led by the types of the fields. What has its default is left out, keys are the fields' names. Known are dataclasses,
enumerations, tuples, mappings (as pairs where their keys are no text), and numbers, text, true and false, or None;
numbers that JSON does not have (infinite, not a number) are text. Unlike `codec`, which writes what people read.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["changed_fields", "pack", "packer", "unpack", "unpacker", "with_fields"]

T = TypeVar("T")


class _Part(NamedTuple):
    """How a field is written and read."""

    name: str
    default: object
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def pack(value: Any) -> Any:
    """The JSON of a dataclass's value."""
    return packer(type(value))(value)


def unpack(kind: type[T], value: Any) -> T:
    """The value in JSON that `pack` gave; keys that the type does not have are left out."""
    made: T = unpacker(kind)(value)
    return made


def changed_fields(before: Any, after: Any) -> dict[str, Any]:
    """The JSON of those fields in which two values of a dataclass differ."""
    found = {}
    for part in _parts(type(after)):
        old, new = getattr(before, part.name), getattr(after, part.name)
        if old is not new and old != new:
            found[part.name] = part.pack(new)
    return found


def with_fields(value: T, changes: Mapping[str, Any]) -> T:
    """A copy of a dataclass's value with what `changed_fields` gave."""
    parts = {part.name: part for part in _parts(type(value))}
    kept = {name: getattr(value, name) for name in parts}
    return type(value)(
        **{**kept, **{name: parts[name].unpack(each) for name, each in changes.items() if name in parts}}
    )


def packer(hint: Any) -> Callable[[Any], Any]:
    """What writes values of a type."""
    return _codec(hint)[0]


def unpacker(hint: Any) -> Callable[[Any], Any]:
    """What reads them."""
    return _codec(hint)[1]


def _parts(kind: Any) -> tuple[_Part, ...]:
    return _parts_of(kind)


@cache
def _parts_of(kind: Any) -> tuple[_Part, ...]:
    hints = typing.get_type_hints(kind)
    return tuple(_Part(each.name, _default(each), *_codec(hints[each.name])) for each in fields(kind))


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


@cache
def _codec(hint: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _optional(hint)
    if is_dataclass(origin):
        return _packed(origin), _unpacked(origin)
    if origin is tuple:
        return _tuple(arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*arguments)
    if isinstance(origin, type) and issubclass(origin, Enum):
        return (lambda value: value.value), origin
    return (_number, _float) if origin is float else (_same, _same)


def _optional(hint: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    (inner,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
    write, read = _codec(inner)
    if write is _same:
        return _same, _same
    return (
        (lambda value: None if value is None else write(value)),
        (lambda value: None if value is None else read(value)),
    )


def _packed(kind: Any) -> Callable[[Any], Any]:
    def write(value: Any) -> dict[str, Any]:
        found = {}
        for name, default, pack_part, _ in _parts(kind):
            part = getattr(value, name)
            if part is not default and part != default:
                found[name] = pack_part(part)
        return found

    return write


def _unpacked(kind: Any) -> Callable[[Any], Any]:
    def read(value: Mapping[str, Any]) -> Any:
        return kind(**{part.name: part.unpack(value[part.name]) for part in _parts(kind) if part.name in value})

    return read


def _tuple(arguments: tuple[Any, ...]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:  # noqa: PLR2004 - tuple[X, ...]
        write, read = _codec(arguments[0])
        if write is _same:
            return list, tuple
        return (lambda value: list(map(write, value))), (lambda value: tuple(map(read, value)))
    codecs = [_codec(each) for each in arguments]
    return (
        (lambda value: [write(each) for (write, _), each in zip(codecs, value, strict=True)]),
        (lambda value: tuple(read(each) for (_, read), each in zip(codecs, value, strict=True))),
    )


def _mapping(key: Any, item: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    (write_key, read_key), (write, read) = _codec(key), _codec(item)
    if key is str:
        return (
            (lambda value: {name: write(each) for name, each in value.items()}),
            (lambda value: {name: read(each) for name, each in value.items()}),
        )
    return (
        (lambda value: [[write_key(name), write(each)] for name, each in value.items()]),
        (lambda value: {read_key(name): read(each) for name, each in value}),
    )


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _float(value: float | str) -> float:
    return float(value) if isinstance(value, str) else value


def _same(value: Any) -> Any:
    return value
