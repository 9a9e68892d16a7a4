# SPDX-License-Identifier: Apache-2.0
"""Arguments of a Job's plugins, which Volcano reads with Go's package `flag`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["flag"]


def flag(arguments: Sequence[str] | None, name: str, default: str) -> str:
    """The value of a flag, `--NAME=VALUE` or `--NAME VALUE`, with one dash or two; the last one counts."""
    value = default
    words = list(arguments or ())
    for index, word in enumerate(words):
        given, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        if word.startswith("-") and given == name:
            value = text if equals else "".join(words[index + 1 : index + 2])
    return value
