# SPDX-License-Identifier: Apache-2.0
"""Options that need not be said each time: from the environment, or from a file.

What is said on the command line counts, then the environment, then the file, then the default. In the file, an option
that stands at the top is that of every command that has it; below a command's name, of that command alone.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["CONFIG", "OptionAt", "config_option", "options_below"]

CONFIG = "kfp_volcano.config"
"""In the context's `meta`: the file, and what it says; absent where there is none."""
_APART = ("help", "version", "config", "quiet", "verbose")


@dataclass(frozen=True, slots=True)
class OptionAt:
    """An option of a command."""

    command: tuple[str, ...]
    option: click.Option

    @property
    def name(self) -> str:
        """As it is called in the file: its longest form without dashes."""
        return max(self.option.opts, key=len).lstrip("-")

    @property
    def variables(self) -> list[str]:
        """The variables of the environment that are read for it, the first that is set counts."""
        named = self.option.envvar or []
        own = "_".join(["KFP_VOLCANO", *self.command, str(self.option.name)]).upper().replace("-", "_")
        return [*([named] if isinstance(named, str) else named), own]


def options_below(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[OptionAt]:
    """Every option of a command and of those below it, but for those that are about the command line itself."""
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from options_below(command.commands[name], (*path, name))
    for each in command.params:
        if isinstance(each, click.Option) and each.name not in _APART:
            yield OptionAt(path, each)


def config_option(command: Callable[..., None]) -> Callable[..., None]:
    """`--config FILE`: what it says becomes the defaults of all commands."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="KFP_VOLCANO_CONFIG",
        is_eager=True,
        expose_value=False,
        callback=_read,
        help="Settings; by default kfp-volcano/config.yaml in $XDG_CONFIG_HOME or ~/.config, where it is there.",
    )(command)


def _read(context: click.Context, _option: click.Parameter, named: Path | None) -> None:
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    file = named or Path(folder) / "kfp-volcano" / "config.yaml"
    if context.resilient_parsing or (named is None and not file.exists()):
        return
    from kfp_volcano.reading import read_document  # noqa: PLC0415

    said = dict(read_document(file))
    context.meta[CONFIG] = (file, said)
    context.default_map = _defaults(context.command, said, str(file))


def _defaults(program: click.Command, said: Mapping[str, Any], source: str) -> dict[str, Any]:
    """What click takes for defaults. Raises SpecError for what no command knows, all at once."""
    known = list(options_below(program))
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    for key, value in _entries(said):
        fitting = [each for each in known if key in ((*each.command, each.name), (each.name,))]
        if not fitting:
            names = {" ".join((*each.command, each.name)) for each in known} | {each.name for each in known}
            close = difflib.get_close_matches(" ".join(key), sorted(names), n=1)
            remedy = f"did you mean {close[0]}?" if close else "kfp-volcano config --all lists what may stand here"
            problems.append(Problem(".".join(key), "is no option of a command", remedy))
        for each in fitting:
            place = found
            for part in each.command:
                place = place.setdefault(part, {})
            if len(key) > 1 or each.option.name not in place:
                place[str(each.option.name)] = value
    if problems:
        raise SpecError(problems, source=source)
    return found


def _entries(said: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What is said, the general before the special."""
    for key, value in said.items():
        if not isinstance(value, dict):
            yield (*above, str(key)), value
    for key, value in said.items():
        if isinstance(value, dict):
            yield from _entries(value, (*above, str(key)))
