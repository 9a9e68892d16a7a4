# SPDX-License-Identifier: Apache-2.0
"""A document in which some values are wrong or not known yet, and what can be relied on in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.structure import Unknown

if TYPE_CHECKING:
    from collections.abc import Collection

    from kfp_volcano.schemas.structure import Path

__all__ = ["Sound"]


class Sound:
    """The values of a document with which nothing is wrong so far and that are known.

    A rule asks for what it needs; it is skipped where that is broken (which has been told) or not known yet.
    """

    def __init__(self, value: Any, broken: Collection[Path]) -> None:
        self._value = value
        self._broken = frozenset(broken)
        self._around = {path[:depth] for path in broken for depth in range(len(path) + 1)}
        """The broken places and everything that one is part of."""

    def get(self, *path: str | int, default: Any = None) -> Any:
        """The value at a path; `default` where certainly none is written; None where there is none to rely on."""
        if self._broken and (path in self._around or any(path[:depth] in self._broken for depth in range(len(path)))):
            return None
        value: Any = self._value
        for part in path:
            if isinstance(value, Unknown):
                return None
            if isinstance(value, dict) and part not in value:
                return default
            if not isinstance(value, dict) and not (isinstance(value, list) and isinstance(part, int)):
                return default
            value = value[part]  # type: ignore[index]
        return None if isinstance(value, Unknown) else value

    def absent(self, *path: str | int) -> bool:
        """Whether it is certain that nothing is written at a path."""
        value = self._value
        for depth, part in enumerate(path):
            if path[:depth] in self._broken:
                return False
            if isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
                continue
            if not isinstance(value, dict):
                return False
            if part not in value:
                return True
            value = value[part]
        return False

    def keys(self, *path: str | int) -> list[str]:
        """The keys of the mapping at a path, also where something is wrong inside it."""
        value = self._at(path)
        return list(value) if isinstance(value, dict) else []

    def count(self, *path: str | int) -> int:
        """The length of the list at a path, also where something is wrong inside it."""
        value = self._at(path)
        return len(value) if isinstance(value, list) else 0

    def _at(self, path: tuple[str | int, ...]) -> Any:
        value = self._value
        for part in path:
            if isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                value = value.get(part) if isinstance(value, dict) else None
        return value
