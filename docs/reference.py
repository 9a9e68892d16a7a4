# SPDX-License-Identifier: Apache-2.0
"""Writes the reference pages that follow from the code: `python -P docs/reference.py` (scripts/docs does)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PAGES", "WRITTEN"]

_HERE = Path(__file__).parent / "reference"
WRITTEN = "<!-- Written by docs/reference.py from the code. -->\n"


def commands() -> str:
    """Every command with its help and options."""
    intro = "All options of all commands, as `--help` tells them. What they share is in [Command line](../cli.md).\n"
    return "\n".join(["# Commands\n", intro, *_command("kfp-volcano", main)]).rstrip() + "\n"


def _command(path: str, command: click.Command) -> Iterator[str]:
    shape: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100, "help_option_names": ["-h", "--help"]}
    with click.Context(command, info_name=path, **shape) as context:
        yield f"## `{path}`\n"
        yield f"```text\n{command.get_help(context).rstrip()}\n```\n"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                yield from _command(f"{path} {name}", command.commands[name])


PAGES = {"commands.md": commands}
"""What writes each page, by the page's name in docs/reference/."""

if __name__ == "__main__":
    _HERE.mkdir(exist_ok=True)
    for name, write in PAGES.items():
        (_HERE / name).write_text(WRITTEN + write(), encoding="utf-8")
