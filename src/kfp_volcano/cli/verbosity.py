# SPDX-License-Identifier: Apache-2.0
"""How much a command says on standard error: `--quiet`, `--verbose`, and what both leave alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "say", "verbosity_options"]

_QUIET = "kfp_volcano.quiet"
_FORMAT = "%(asctime)s %(name)s: %(message)s"


def verbosity_options(command: click.Command) -> None:
    """Give a command `--quiet` and `--verbose`."""
    if any(isinstance(each, click.Option) and "--quiet" in each.opts for each in command.params):
        return
    command.params += [
        click.Option(
            ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_quiet, help="No messages but errors."
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_verbose,
            help="Tell each request to clusters, backends and stores.",
        ),
    ]


def say(message: str) -> None:
    """A message for whoever looks on, on standard error: no data, and no error."""
    if not _is_quiet():
        click.echo(message, err=True)


def console() -> Console:
    """Where progress is shown: standard error."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True, quiet=_is_quiet())


def _is_quiet() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def _quiet(context: click.Context, _option: click.Parameter, value: Any) -> None:
    if value:
        context.meta[_QUIET] = True


def _verbose(_context: click.Context, _option: click.Parameter, value: Any) -> None:
    if value:
        logging.basicConfig(format=_FORMAT)
        for name in ("kfp_volcano", "urllib3", "fsspec"):
            logging.getLogger(name).setLevel(logging.DEBUG)
