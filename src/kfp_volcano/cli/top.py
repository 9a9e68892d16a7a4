# SPDX-License-Identifier: Apache-2.0
"""The command `kfp-volcano top`: queues, Jobs, GPUs and decisions, as they change."""

from __future__ import annotations

import errno
import select
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kfp_volcano.cli.options import cluster_options, reach
from kfp_volcano.cli.output import output_option, print_data
from kfp_volcano.cli.tables import age
from kfp_volcano.errors import UnavailableError
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kfp_volcano.volcano.launcher.board import Board, DecisionRow, JobRow, QueueRow

__all__ = ["top"]

_EVERY_S = 0.5
"""Least time between two pictures, seconds."""
_AGES_S = 5.0
"""How long a picture stays where nothing changes but ages."""
_PATIENCE_S = 30.0
_MOST_DECISIONS = 10


@click.command()
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; repeat.")
@click.option("--once", is_flag=True, help="Print how things stand, and end.")
@output_option("table")
@cluster_options
def top(*, queues: tuple[str, ...], once: bool, output: str, kubeconfig: Path | None, context: str | None) -> None:
    """Show the queues, their Jobs and GPUs, and what was decided last, as they change; ends with Ctrl-C.

    Where the output is no terminal, a line is printed for each thing that changes.

    \b
    Example: kfp-volcano top
             kfp-volcano top --queue research --once
             kfp-volcano top --once -o json
    """
    from kfp_volcano.elastic.autoscaler.observing.view import ClusterView  # noqa: PLC0415

    if output != "table" and not once:
        raise click.UsageError(f"-o {output} is of one moment: say --once too")

    view = ClusterView(reach(kubeconfig, context))
    view.start()
    try:
        if once and output != "table":
            print_data(asdict(_picture(view, queues)), output)
        elif once:
            _print(_picture(view, queues))
        elif _is_screen():
            _live(view, queues)
        else:
            _lines(view, queues)
    finally:
        view.stop()


def _is_screen() -> bool:
    """Whether the output can be drawn anew again and again."""
    from rich.console import Console  # noqa: PLC0415

    console = Console()
    return sys.stdout.isatty() and not console.is_dumb_terminal


def _picture(view: Any, queues: tuple[str, ...]) -> Board:
    """How things stand. Raises UnavailableError where the cluster does not let itself be read for long."""
    from kfp_volcano.volcano.launcher.board import board  # noqa: PLC0415

    until = time.monotonic() + _PATIENCE_S
    while True:
        with view.reading() as stamped:
            if stamped is not None:
                stamped.index.changes()
                return board(stamped.index, time.time(), queues)
        if time.monotonic() > until:
            raise UnavailableError(f"the cluster could not be read for {_PATIENCE_S:.0f} s")
        view.wait(-1, timeout_s=_EVERY_S)


def _live(view: Any, queues: tuple[str, ...]) -> None:
    from rich.console import Group  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    version = 0
    with Live(auto_refresh=False, screen=True) as live:
        while True:
            live.update(Group(*_tables(_picture(view, queues), view.stale_since)), refresh=True)
            time.sleep(_EVERY_S)  # pictures in between would only flicker
            version = view.wait(version, timeout_s=_AGES_S - _EVERY_S)


def _lines(view: Any, queues: tuple[str, ...]) -> None:
    shown: dict[tuple[str, str], tuple[str, ...]] = {}
    version = 0
    while True:
        picture = _picture(view, queues)
        rows = _rows(picture)
        for line in _news(shown, rows):
            click.echo(f"{time.strftime('%H:%M:%S', time.localtime(picture.at))} {line}")
        shown = rows
        time.sleep(_EVERY_S)
        version = view.wait(version, timeout_s=_EVERY_S)
        _somebody_reads()


def _somebody_reads() -> None:
    """Raises BrokenPipeError where the reader has gone, which a program learns of otherwise only when it writes."""
    try:
        output = sys.stdout.fileno()
    except OSError:  # no file, as in tests
        return
    reader = select.poll()
    reader.register(output, 0)
    if any(state & select.POLLERR for _, state in reader.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "the reader has gone")


def _rows(picture: Board) -> dict[tuple[str, str], tuple[str, ...]]:
    """What there is to say of each thing, by kind and name, without what changes with nothing but time."""
    rows = {("queue", row.queue): _queue_cells(row) for row in picture.queues}
    rows |= {("job", row.job): _job_cells(row, None) for row in picture.jobs}
    return rows | {("decided", row.job): _decision_cells(row, None) for row in reversed(picture.decisions)}


def _news(
    shown: Mapping[tuple[str, str], tuple[str, ...]], rows: Mapping[tuple[str, str], tuple[str, ...]]
) -> Iterator[str]:
    """A line for each thing that is another than was shown."""
    for (kind, name), cells in rows.items():
        if shown.get((kind, name)) != cells:
            yield f"{kind:<8}{'  '.join(cell for cell in cells if cell)}"
    for kind, name in shown.keys() - rows.keys():
        yield f"{kind:<8}{name}  is gone"


def _print(picture: Board) -> None:
    from rich.console import Console  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else 200, markup=False)
    for table in _tables(picture, None):
        console.print(table, highlight=False)


def _tables(picture: Board, stale_since: float | None) -> list[Any]:
    """The picture in the form of rich."""
    queues = _table(("QUEUE", "GPUS", "DESERVED", "FREE", "JOBS", "WAITING"))
    for row in picture.queues:
        queues.add_row(*_queue_cells(row))
    jobs = _table(("JOB", "QUEUE", "STATE", "WORKERS", "OF", "GPUS", "DONE", "PRIORITY", ""))
    for job in picture.jobs:
        jobs.add_row(*_job_cells(job, picture.at))
    decided = _table(("DECIDED", "JOB", "WORKERS", "REASON", "CAME TO", "WHY"))
    for decision in picture.decisions[:_MOST_DECISIONS]:
        decided.add_row(*_decision_cells(decision, picture.at))
    parts: list[Any] = [queues, "", jobs]
    if picture.decisions:
        parts += ["", decided]
    if stale_since is not None:
        parts.append(f"\nthe cluster has not been seen for {picture.at - stale_since:.0f} s")
    return parts


def _table(columns: tuple[str, ...]) -> Any:
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _queue_cells(row: QueueRow) -> tuple[str, ...]:
    waiting = f"{row.waiting} for {counted(row.waiting_gpus, 'GPU')}" if row.waiting else "-"
    deserved = "-" if row.deserved is None else f"{row.deserved}"
    return row.queue, f"{row.used}/{row.limit}", deserved, f"{row.free}", f"{row.jobs}", waiting


def _job_cells(row: JobRow, at: float | None) -> tuple[str, ...]:
    """Without a time, what changes with nothing but time is left out."""
    size = f"{row.running}/{row.workers}" + (f" -> {row.target}" if row.target not in {None, row.workers} else "")
    sizes = f"{row.sizes[0]}-{row.sizes[1]}" if row.sizes else "-"
    done = "" if row.done is None or at is None else f"{row.done:.0%}"
    notes = []
    if row.held_until is not None:
        notes.append(f"held by {row.held_by}" + ("" if at is None else f" for {age(row.held_until - at)} more"))
    if row.waits_since is not None:
        notes.append("waits" + ("" if at is None else f" for {age(at - row.waits_since)}"))
    return row.job, row.queue, row.state, size, sizes, f"{row.gpus}", done, row.priority or "-", ", ".join(notes)


def _decision_cells(row: DecisionRow, at: float | None) -> tuple[str, ...]:
    size = f"{row.from_workers} -> {row.to_workers}"
    ago = [] if at is None else [f"{age(at - row.at)} ago"]
    return (*ago, row.job, size, row.reason, row.became, row.explanation)
