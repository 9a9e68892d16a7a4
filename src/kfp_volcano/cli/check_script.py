# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano check-script`: whether a training script stands resizes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.verbosity import say
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from kfp_volcano.elastic.checking.checker import Reading
    from kfp_volcano.volcano.launcher.rehearsal.verdict import Verdict

__all__ = ["check_script"]

MISTAKES = 1
_NOT_PLAYED = frozenset({"tensorflow", "keras", "mpi4py", "horovod", "ray"})
"""Libraries whose scripts need more than torchrun's environment."""
_LIVE = {"live": True, "restart": False}


@click.command("check-script")
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "--strategy",
    type=click.Choice(["live", "restart"]),
    help="How it resizes; by default live where it makes a Training, else restart.",
)
@click.option("--static-only", is_flag=True, help="Read the script, and do not run it.")
@click.option("--args", "arguments", default="", metavar="TEXT", help="Arguments of the script, as a shell takes them.")
@click.option("--workers", default="2:3", show_default=True, metavar="MIN:MAX", help="The sizes of the run.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="For the whole run.",
)
@click.option("--ignore", multiple=True, metavar="CODE", help="Say nothing about this mistake; repeat.")
@output_option("text")
def check_script(
    script: Path,
    *,
    strategy: str | None,
    static_only: bool,
    arguments: str,
    workers: str,
    timeout: float,
    ignore: tuple[str, ...],
    output: str,
) -> int:
    """Find out whether a training script stands resizes: read it, then train some steps elastically.

    The script is read with the modules that it imports from its folder. Each finding has a place, a code, what it does
    to an elastic run, and what to write instead. Then some steps are trained on an embedded cluster, with real
    processes: workers join, one is killed, the whole Job is stopped and started again. Exit code 0 where all is right
    (notes may be there), 1 where it is not.

    \b
    Example: kfp-volcano check-script train.py --args "--epochs 3"
             kfp-volcano check-script train.py --static-only -o json
    """
    from kfp_volcano.elastic.checking.checker import check  # noqa: PLC0415
    from kfp_volcano.volcano.launcher.rehearsal.rehearsal import rehearse  # noqa: PLC0415

    sizes, words = _sizes(workers), _words(arguments)
    reading = check(script, live=_LIVE.get(strategy or ""), ignored=ignore)
    if output == "text":
        for finding in reading.findings:
            click.echo(f"{finding}\n")
        click.echo(_told(reading))
    verdict = None
    foreign = sorted(reading.imports & _NOT_PLAYED)
    if foreign and not reading.live and not static_only:
        say(f"not run: scripts of {foreign[0]} are only read")
    elif not static_only:
        verdict = rehearse(
            script,
            words,
            live=reading.live,
            findings=reading.findings,
            workers=sizes,
            timeout_s=timeout,
            tell=say,
        )
    right = not reading.mistakes and (verdict is None or verdict.right)
    if output != "text":
        print_data({"script": str(script), "right": right, **_reading(reading), "run": _run(verdict)}, output)
    elif verdict is not None:
        click.echo(f"\n{verdict}")
    return 0 if right else MISTAKES


def _sizes(text: str) -> tuple[int, int]:
    """The fewest and the most workers. Raises SpecError where they are no such pair."""
    least, _, most = text.partition(":")
    if least.isdigit() and most.isdigit() and 1 <= int(least) < int(most):
        return int(least), int(most)
    raise SpecError(f"{text!r} is not MIN:MAX with 1 <= MIN < MAX, as in 2:3", source="--workers")


def _words(text: str) -> list[str]:
    """The script's arguments. Raises SpecError where quotes do not match."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SpecError(f"{text!r} cannot be split: {error}", source="--args") from error


def _reading(reading: Reading) -> dict[str, Any]:
    """What was read, as JSON."""
    return {
        "strategy": "live" if reading.live else "restart",
        "files": list(reading.files),
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


def _run(verdict: Verdict | None) -> dict[str, Any] | None:
    """What came out of the run, as JSON."""
    if verdict is None:
        return None
    lines = [{"right": line.right, "what": line.what} for line in verdict.lines]
    return {"right": verdict.right, "verdict": lines, "figures": verdict.figures}


def _told(reading: Reading) -> str:
    """What was read, in a line."""
    files = counted(len(reading.files), "file")
    strategy = "live" if reading.live else "restart"
    mistakes, notes = len(reading.mistakes), len(reading.findings) - len(reading.mistakes)
    found = [
        f"{number or 'no'} {word}{'' if number == 1 else 's'}"
        for number, word in ((mistakes, "mistake"), (notes, "note"))
    ]
    return f"read {files}, strategy {strategy}: {', '.join(found)}"
