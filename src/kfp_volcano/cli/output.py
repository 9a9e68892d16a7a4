# SPDX-License-Identifier: Apache-2.0
"""`-o`: the same data for people, or as JSON or YAML for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["output_option", "print_data"]

Command = TypeVar("Command", bound="Callable[..., Any]")


def output_option(human: str) -> Callable[[Command], Command]:
    """`-o`, by default what people read: `table` or `text`."""
    forms = click.Choice((human, "json", "yaml"))
    return click.option("-o", "--output", type=forms, default=human, show_default=True, help="For people or programs.")


def print_data(value: Any, output: str) -> None:
    """Print plain values as JSON or YAML; times as ISO 8601."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=lambda moment: moment.isoformat())
    if output == "yaml":
        import yaml  # noqa: PLC0415

        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip("\n")
    click.echo(text)
