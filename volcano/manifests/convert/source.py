# SPDX-License-Identifier: Apache-2.0
"""A manifest as it is read: each read says what became of the field, so that none can be forgotten.

A `View` is a mapping of the manifest. Reading a field marks it; `unread` gives what nobody read. Whoever reads says in
the same call where the value went (`to=`), or tells the `Account` that it works differently or is lost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.wording import dotted, shown
from kfp_volcano.volcano.manifests.convert.report import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kfp_volcano.schemas.structure import Path
    from kfp_volcano.volcano.manifests.convert.report import Outcome

__all__ = ["Account", "View", "refuse"]

_PLACEHOLDER = re.compile(r"\$\{?[A-Za-z_]|\{\{|^<.*>$")


def refuse(path: str, message: str, remedy: str = "") -> NoReturn:
    """Give the document up: what it says cannot be said in a TrainingJob."""
    raise SpecError([Problem(path, message, remedy)])


class Account:
    """What became of the fields of a document so far."""

    def __init__(self) -> None:
        self._entries: list[tuple[str, Outcome, object, str, str]] = []
        self._roots: list[tuple[Path, Any]] = []
        self._read: set[Path] = set()
        self._touched: set[Path] = set()

    @property
    def entries(self) -> list[Entry]:
        """The account. A target is put into words now: roles are renamed and merged after their pods were read."""
        return [
            Entry(path=path, outcome=outcome, target=str(target), why=why, remedy=remedy)
            for path, outcome, target, why, remedy in self._entries
        ]

    def kept(self, path: str, target: object) -> None:
        """The field stands in the TrainingJob, and means the same."""
        self._entries.append((path, "kept", target, "", ""))

    def changed(self, path: str, target: object, why: str, remedy: str = "") -> None:
        """The field, or what the operator does where it is absent, works differently now."""
        self._entries.append((path, "changed", target, why, remedy))

    def lost(self, path: str, why: str, remedy: str = "") -> None:
        """Nothing in a TrainingJob does what the field does."""
        self._entries.append((path, "lost", "", why, remedy))

    def revise(self, old: object, path: str, new: object, why: str, remedy: str = "") -> None:
        """What was kept at `old` works differently after all; where nothing was, it is told of `path`."""
        found = [index for index, entry in enumerate(self._entries) if entry[1] == "kept" and entry[2] == old]
        for index in found:
            self._entries[index] = (self._entries[index][0], "changed", new, why, remedy)
        if not found:
            self.changed(path, new, why, remedy)

    def open(self, value: dict[str, Any], path: Path = ()) -> View:
        """A document to read; of several, each has a path of its own."""
        self._roots.append((path, value))
        return View(value, path, self)

    def close(self) -> None:
        """Account for what nobody read: the converter does not know it."""
        for root, value in self._roots:
            for path, part in self.unread(value, root):
                why = f"is not known to this converter: {shown(part)}"
                self.lost(dotted(path), why, "see whether the job needs it")

    def mark(self, path: Path, *, entered: bool = False) -> None:
        """A field was read whole, or entered to read what is in it."""
        if not entered:
            self._read.add(path)
        self._touched.update(path[:depth] for depth in range(len(path) + 1))

    def unread(self, value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
        """The largest parts of a document of which nothing was read."""
        if path in self._read:
            return
        if path not in self._touched:
            yield path, value
            return
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in children:
            yield from self.unread(child, (*path, key))


class View:
    """A mapping of a document, and where it stands there; an absent one is empty."""

    def __init__(self, value: dict[str, Any], path: Path, account: Account) -> None:
        self._value = value
        self.path = path
        self.account = account
        account.mark(path, entered=True)

    def at(self, *keys: str | int) -> str:
        """The path of something in the mapping, as people write it."""
        return dotted((*self.path, *keys))

    def __contains__(self, key: str) -> bool:
        """Whether a key has a value; null is as good as none, as in Kubernetes."""
        return self._value.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        """The keys, in the order written."""
        return iter(self._value)

    def rest(self) -> list[str]:
        """The keys of which something is unread."""
        return [key for key, value in self._value.items() if list(self.account.unread(value, (*self.path, key)))]

    def peek(self, key: str) -> Any:
        """A value that somebody else will read."""
        return self._value.get(key)

    def map(self, key: str) -> View:
        """The mapping under a key, to be read in its turn."""
        return View(self._typed(key, dict, "a mapping") or {}, (*self.path, key), self.account)

    def maps(self, key: str) -> list[View]:
        """The mappings of the list under a key, to be read in their turn."""
        items = self._typed(key, list, "a list") or []
        self.account.mark((*self.path, key), entered=True)
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                refuse(self.at(key, index), f"should be a mapping, but is {shown(item)}")
        return [View(item, (*self.path, key, index), self.account) for index, item in enumerate(items)]

    def any(self, key: str, to: object = "") -> Any:
        """The value under a key, whatever it is, read whole; it goes to `to`, or is accounted for by the caller."""
        value = self._value.get(key)
        if key in self._value:
            self.account.mark((*self.path, key))
        if value is not None and to:
            self.account.kept(self.at(key), to)
        return value

    def text(self, key: str, to: object = "") -> str | None:
        """The text under a key; None where there is none."""
        value: str | None = self._typed(key, str, "text")
        self.any(key, to)
        return value or None

    def number(self, key: str, to: object = "") -> int | None:
        """The whole number under a key; None where there is none."""
        value: int | None = self._typed(key, int, "a whole number")
        self.any(key, to)
        return value

    def flag(self, key: str, to: object = "") -> bool | None:
        """The true or false under a key; None where there is neither."""
        value: bool | None = self._typed(key, bool, "true or false")
        self.any(key, to)
        return value

    def texts(self, key: str, to: object = "") -> list[str]:
        """The list of texts under a key; empty where there is none."""
        items: Sequence[Any] = self._typed(key, list, "a list of texts") or []
        for index, item in enumerate(items):
            if not isinstance(item, str):
                refuse(self.at(key, index), f"should be text, but is {shown(item)}", "put it in quotes")
        self.any(key, to)
        return list(items)

    def labels(self, key: str) -> dict[str, str]:
        """The mapping of text to text under a key, each entry accounted for by the caller."""
        found = self._typed(key, dict, "a mapping") or {}
        self.account.mark((*self.path, key), entered=True)
        for name, value in found.items():
            if not isinstance(value, str):
                refuse(self.at(key, name), f"should be text, but is {shown(value)}", "put it in quotes")
            self.account.mark((*self.path, key, name))
        return dict(found)

    def changed(self, key: str, to: object, why: str, remedy: str = "") -> None:
        """What is under a key, if anything, works differently now."""
        if self.any(key) is not None:
            self.account.changed(self.at(key), to, why, remedy)

    def lost(self, key: str, why: str, remedy: str = "") -> None:
        """What is under a key, if anything, has no counterpart."""
        if self.any(key) is not None:
            self.account.lost(self.at(key), why, remedy)

    def _typed(self, key: str, kind: type, wanted: str) -> Any:
        value = self._value.get(key)
        if value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
            return value
        placeholder = isinstance(value, str) and _PLACEHOLDER.search(value)
        remedy = "fill in the placeholder first, with envsubst for example" if placeholder else ""
        return refuse(self.at(key), f"should be {wanted}, but is {shown(value)}", remedy)
