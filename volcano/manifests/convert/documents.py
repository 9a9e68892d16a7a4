# SPDX-License-Identifier: Apache-2.0
"""The documents of a file: YAML or JSON, several in a file, lists of objects taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.documents import parse
from kfp_volcano.schemas.structure import normalise
from kfp_volcano.schemas.wording import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Document", "documents"]

_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_NOTHING = re.compile(r"\ufeff?(?:\s|#[^\n]*(?:\n|$)|%[^\n]*(?:\n|$)|\.\.\.(?:\n|$))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One object of a file, or what is wrong where one should be."""

    source: str
    """The file, and where in it."""
    value: dict[str, Any] | SpecError

    @property
    def kind(self) -> str:
        """The object's kind; empty where it has none."""
        return "" if isinstance(self.value, SpecError) else str(self.value.get("kind", ""))

    @property
    def api(self) -> str:
        """The object's apiVersion; empty where it has none."""
        return "" if isinstance(self.value, SpecError) else str(self.value.get("apiVersion", ""))


def documents(text: str, source: str) -> Iterator[Document]:
    """The objects in a file's text. What is wrong with one document leaves the others as they are.

    Documents are separated at lines that begin with `---`, before YAML is parsed, as kubectl does it.
    """
    starts = [0, *(match.end() for match in _SEPARATOR.finditer(text))]
    ends = [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    parts = [(text[:start].count("\n"), text[start:end]) for start, end in zip(starts, ends, strict=True)]
    parts = [(line, part) for line, part in parts if not _NOTHING.fullmatch(part)]
    for number, (line, part) in enumerate(parts, start=1):
        place = f"{source}, document {number}" if len(parts) > 1 else source
        try:
            # The lines before it, empty, so that a message has the line in the file.
            value = parse(part if part.lstrip().startswith("{") else "\n" * line + part, source=place)
        except SpecError as error:
            yield Document(source=place, value=error)
            continue
        plain, findings = normalise(value, {})
        if findings:
            problems = [Problem(dotted(path) or place, message, remedy) for path, message, remedy in findings]
            yield Document(source=place, value=SpecError(problems, source=place))
        else:
            yield from _apart(plain, place)


def _apart(value: dict[str, Any], place: str) -> Iterator[Document]:
    """An object, or those of a list (`kind: List`, `PyTorchJobList`)."""
    items = value.get("items")
    if not (str(value.get("kind", "")).endswith("List") and isinstance(items, list)):
        yield Document(source=place, value=value)
        return
    kind = value["kind"].removesuffix("List")
    for index, item in enumerate(items):
        where = f"{place}, items[{index}]"
        if isinstance(item, dict):
            given = {"apiVersion": value.get("apiVersion"), "kind": kind} if kind else {}
            yield from _apart({**given, **item}, where)
        else:
            yield Document(source=where, value=SpecError("should be a mapping", source=where))
