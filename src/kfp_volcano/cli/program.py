# SPDX-License-Identifier: Apache-2.0
"""The program as a whole: commands that are imported when asked for, and how each of them may end."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.verbosity import verbosity_options
from kfp_volcano.errors import KfpVolcanoError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["BROKEN_PIPE", "INTERRUPTED", "Entry", "Program"]

INTERRUPTED = 130
BROKEN_PIPE = 141
"""128 + SIGPIPE: as a shell tells of a program whose reader has gone, such as `head`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is."""

    module: str
    """In this package; with `:NAME` where the function is not called as the command is."""
    help: str
    """The first sentence of the command's own help, known without importing it."""

    def load(self, name: str) -> click.Command:
        """Import it."""
        module, _, function = self.module.partition(":")
        found = getattr(importlib.import_module(f"kfp_volcano.cli.{module}"), function or name.replace("-", "_"))
        assert isinstance(found, click.Command)  # noqa: S101 - of this package's own table
        for each in _below(found):
            each.context_settings.setdefault("help_option_names", ["-h", "--help"])
            if not isinstance(each, click.Group):
                verbosity_options(each)
        return found


class _Commands(MutableMapping[str, click.Command]):
    """The commands by name; what is looked up is imported then."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            self._loaded[name] = self._entries[name].load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Program(click.Group):
    """A group of commands that are imported when asked for. Errors raised on purpose become a message and a code."""

    def __init__(self, *arguments: Any, entries: Mapping[str, Entry], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.entries = entries
        self.commands = _Commands(entries)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        """List them, without importing any."""
        room = formatter.width - 6 - max(map(len, self.entries))
        short = (click.Command(name, help=entry.help).get_short_help_str(room) for name, entry in self.entries.items())
        with formatter.section("Commands"):
            formatter.write_dl(list(zip(self.entries, short, strict=True)))

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Read the command line; help is printed by that already."""
        with _while_somebody_reads():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Carry it out."""
        with _while_somebody_reads():
            return super().invoke(ctx)

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line."""
        options = {"prog_name": "kfp-volcano", **options, "standalone_mode": False}
        try:
            code = super().main(*arguments, **options)
        except click.exceptions.Abort:
            sys.exit(INTERRUPTED)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except KfpVolcanoError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _while_somebody_reads() -> Iterator[None]:
    """End with the code of SIGPIPE where whoever read the output has gone: click's own is that of a failed training."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would be a message of the interpreter's own at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE)


def _below(command: click.Command) -> Iterator[click.Command]:
    """A command, and all below it."""
    yield command
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _below(each)
