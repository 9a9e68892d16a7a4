# SPDX-License-Identifier: Apache-2.0
"""Tables on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["age", "print_table"]

_WIDE = 200
"""Characters of a line that goes to a file or another program."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows as they are: a bracket in a name or a message is a bracket, not markup."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    width = None if Console().is_terminal else _WIDE
    Console(width=width, markup=False).print(table, highlight=False)


def age(seconds: float) -> str:
    """A time that has passed, in the largest whole unit, as kubectl shows it."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
