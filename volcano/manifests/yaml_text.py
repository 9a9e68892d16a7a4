# SPDX-License-Identifier: Apache-2.0
"""Manifests as YAML text for people: block style, no anchors, keys in the order they have.

Written here and not with PyYAML, whose emitter takes most of the time of rendering. What is written is the least of
YAML: a text stands bare only where no reader of YAML 1.1 or 1.2 takes it for anything else, kubectl among them.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["manifest_yaml"]

_BARE = re.compile(r"(?:--?)?[A-Za-z_/](?:[-A-Za-z0-9_./:@=]*[-A-Za-z0-9_./@=])?")
_WORDS = frozenset(("y", "n", "yes", "no", "true", "false", "on", "off", "null"))
"""What some readers take for a boolean or for nothing, in any case."""

_VISIBLE = r"\x21-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff"
_LINE = re.compile(f"[ {_VISIBLE}]*")
_LINES = re.compile(f"(?:[ {_VISIBLE}]*[{_VISIBLE}]\n+)+(?:[ {_VISIBLE}]*[{_VISIBLE}])?")
"""Texts that a literal block holds as they are: no line ends in spaces."""
_ESCAPED = re.compile(f"[^ {_VISIBLE}]")
_LONGEST_KEY = 1000
"""A key on one line may have 1024 characters."""


def manifest_yaml(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Manifests as YAML documents; every YAML reader takes each text for that text."""
    return "---\n".join(map(_document, manifests))


def _document(manifest: Mapping[str, Any]) -> str:
    lines: list[str] = []
    if manifest:
        _mapping(manifest, "", "", lines.append)
    else:
        lines.append("{}")
    lines.append("")
    return "\n".join(lines)


def _mapping(value: Mapping[str, Any], first: str, indent: str, write: Callable[[str], None]) -> None:
    """The lines of a mapping that is not empty; `first` stands before its first key, `indent` before the others."""
    lead = first
    for key, part in value.items():
        name = _scalar(key)
        head = f"{lead}{name}:" if len(name) < _LONGEST_KEY else f"{lead}? {name}\n{indent}:"
        lead = indent
        if not part or not isinstance(part, (dict, list, tuple)):
            write(f"{head} {_value(part, indent)}")
        elif isinstance(part, dict):
            write(head)
            _mapping(part, indent + "  ", indent + "  ", write)
        else:
            write(head)
            _sequence(part, indent, indent, write)


def _sequence(value: Iterable[Any], first: str, indent: str, write: Callable[[str], None]) -> None:
    lead = first
    for part in value:
        if not part or not isinstance(part, (dict, list, tuple)):
            write(f"{lead}- {_value(part, indent)}")
        elif isinstance(part, dict):
            _mapping(part, lead + "- ", indent + "  ", write)
        else:
            _sequence(part, lead + "- ", indent + "  ", write)
        lead = indent


def _value(value: Any, indent: str) -> str:
    """A value on its key's line: a text, a number, or an empty collection."""
    if isinstance(value, str):
        return _block(value, indent + "  ") if "\n" in value and _LINES.fullmatch(value) else _scalar(value)
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    return json.dumps(value)


def _block(text: str, indent: str) -> str:
    if text[0] in " \n" or text.endswith("\n\n"):
        return _scalar(text)
    style = "|" if text.endswith("\n") else "|-"
    lines = (f"{indent}{line}" if line else "" for line in text.removesuffix("\n").split("\n"))
    return "\n".join((style, *lines))


def _scalar(text: str) -> str:
    return _short(text) if len(text) <= _SHORT else _written(text)


def _written(text: str) -> str:
    if _BARE.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if _LINE.fullmatch(text):
        return "'" + text.replace("'", "''") + "'"
    return _ESCAPED.sub(lambda match: f"\\U{ord(match[0]):08x}", json.dumps(text, ensure_ascii=False))


_SHORT = 64
_short = lru_cache(maxsize=4096)(_written)
"""The same words come again and again."""
