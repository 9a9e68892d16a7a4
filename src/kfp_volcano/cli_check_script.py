"""`kfp-volcano check-script`: whether a training script stands resizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kfp_volcano.elastic.checking.checker import Reading

__all__ = ["check_script"]

MISTAKES = 1
_LIVE = {"live": True, "restart": False}


@click.command("check-script")
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "--strategy",
    type=click.Choice(["live", "restart"]),
    help="How it resizes; by default live where it makes a Training, else restart.",
)
@click.option("--ignore", multiple=True, metavar="CODE", help="Say nothing about this mistake; repeat.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def check_script(script: Path, *, strategy: str | None, ignore: tuple[str, ...], output: str) -> int:
    """Look in a training script for what breaks, or silently changes, an elastic run.

    The script is read with the modules that it imports from its folder, and not executed. Each finding has a place, a
    code, what it does to an elastic run, and what to write instead. Exit code 1 where there are mistakes; notes alone
    are right.

    \b
    Example: kfp-volcano check-script train.py
             kfp-volcano check-script train.py --strategy restart -o json
    """
    from kfp_volcano.elastic.checking.checker import check  # noqa: PLC0415

    reading = check(script, live=_LIVE.get(strategy or ""), ignored=ignore)
    if output == "json":
        click.echo(json.dumps({"script": str(script), **_reading(reading)}, indent=1))
    else:
        for finding in reading.findings:
            click.echo(f"{finding}\n")
        click.echo(_told(reading))
    return MISTAKES if reading.mistakes else 0


def _reading(reading: Reading) -> dict[str, Any]:
    """What was read, as JSON."""
    return {
        "strategy": "live" if reading.live else "restart",
        "files": list(reading.files),
        "right": not reading.mistakes,
        "findings": [
            {
                "path": each.path,
                "line": each.line,
                "code": each.code,
                "name": each.kind.name,
                "severity": each.severity.value,
                "what": each.what,
                "effect": each.kind.effect,
                "remedy": each.kind.remedy,
            }
            for each in reading.findings
        ],
    }


def _told(reading: Reading) -> str:
    """What was read, in a line."""
    files = f"{len(reading.files)} file{'s' if len(reading.files) > 1 else ''}"
    strategy = "live" if reading.live else "restart"
    mistakes, notes = len(reading.mistakes), len(reading.findings) - len(reading.mistakes)
    counted = (
        f"{mistakes or 'no'} mistake{'' if mistakes == 1 else 's'}, {notes or 'no'} note{'' if notes == 1 else 's'}"
    )
    return f"read {files}, strategy {strategy}: {counted}"
