# SPDX-License-Identifier: Apache-2.0
"""A run on the terminal: a live picture where there is a terminal, one plain line a change elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kfp_volcano.schemas.nouns import counted
from kfp_volcano.volcano.launcher.follow import describe_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfp_volcano.schemas.records import ResizeOutcome
    from kfp_volcano.volcano.launcher.overview import Overview

__all__ = ["PlainDisplay", "displaying", "picture"]

SHOWN_RESIZES = 5
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's palette, which colour-blind people can tell apart."""


@contextmanager
def displaying(
    console: Console, *, started_at: float, clock: Callable[[], float]
) -> Iterator[Callable[[Overview], None]]:
    """Give a function that shows the present state of a run."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            yield lambda seen: live.update(picture(seen, elapsed_s=clock() - started_at), refresh=True)
        return
    plain = PlainDisplay(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))
    yield lambda seen: plain.show(seen, elapsed_s=clock() - started_at)


class PlainDisplay:
    """Says each change once, as a line with the time since the start."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: dict[str, str] = {}

    def show(self, seen: Overview, *, elapsed_s: float) -> None:
        """Say what has changed since the last call."""
        for row in seen.rows:
            waits = f": {row.waits}" if row.waits else ""
            self._tell(
                elapsed_s, f"job {row.job}", f"{row.state}, {counted(row.gpus, 'GPU')}{waits}", prefix=f"{row.job} is "
            )
        if seen.progress is not None:
            self._tell(elapsed_s, "progress", describe_progress(seen.progress))
        if seen.request is not None:
            text = f"wanted: {counted(seen.request.to_workers, 'worker')}. {seen.request.explanation}"
            self._tell(elapsed_s, f"request {seen.request.id}", text)
        for outcome in seen.resizes:
            if outcome.phase.final:
                self._tell(elapsed_s, f"resize {outcome.id}", describe_resize(outcome))
        for step in seen.steps:
            self._tell(elapsed_s, f"step {step.name}", step.outcome, prefix=f"step {step.name}: ")

    def _tell(self, elapsed_s: float, key: str, text: str, *, prefix: str = "") -> None:
        if self._told.get(key) != text:
            self._told[key] = text
            self._say(f"{elapsed_s:6.1f} s  {prefix}{text}")


def describe_resize(outcome: ResizeOutcome) -> str:
    """A finished resize, in a line."""
    took = f" in {outcome.done_at - outcome.requested_at:.1f} s" if outcome.done_at else ""
    pause = f", training paused {outcome.pause_s:.2f} s" if outcome.pause_s is not None else ""
    return (
        f"resize {outcome.from_workers} -> {counted(outcome.to_workers, 'worker')} {outcome.phase.value}{took}{pause}"
    )


def picture(seen: Overview, *, elapsed_s: float) -> Group:
    """The run as a picture for the terminal, at most 80 columns needed."""
    return Group(_queue(seen, elapsed_s), _training(seen), _resizes(seen), _steps(seen))


def _queue(seen: Overview, elapsed_s: float) -> Panel:
    bar = Text()
    table = Table.grid(padding=(0, 2))
    for index, row in enumerate(seen.rows):
        colour = COLOURS[index % len(COLOURS)]
        bar.append("█" * (2 * row.gpus), style=colour)
        waits = Text(row.waits or "", style="yellow", overflow="ellipsis", no_wrap=True)
        table.add_row(Text("■ " + row.team, style=colour), row.job, f"{counted(row.gpus, 'GPU')}", row.state, waits)
    bar.append("░" * (2 * max(0, seen.free)), style="dim")
    bar.append(f"  {seen.gpus - seen.free} of {seen.gpus} GPUs in use")
    return Panel(Group(bar, table), title=f"queue {seen.queue}", subtitle=f"{elapsed_s:.0f} s", title_align="left")


def _training(seen: Overview) -> Panel:
    if seen.progress is None:
        body: Group | Text = Text("waiting for the first steps of training", style="dim")
    else:
        bar = ProgressBar(total=max(1, seen.progress.total_steps), completed=seen.progress.step)
        body = Group(Padding(bar), Text(describe_progress(seen.progress)))  # padded, for a bar alone ends no line
    return Panel(body, title=f"training {seen.run_job or ''}".rstrip(), title_align="left")


def _resizes(seen: Overview) -> Panel:
    lines: list[Text] = []
    for outcome in seen.resizes[-SHOWN_RESIZES:]:
        if outcome.phase.final:
            lines.append(Text(describe_resize(outcome), style="bold"))
            lines.append(Text("  " + outcome.explanation, style="dim"))
    answered = {outcome.id for outcome in seen.resizes if outcome.phase.final}
    if seen.request is not None and seen.request.id not in answered:
        lines.append(
            Text(
                f"now: {seen.request.from_workers} -> {counted(seen.request.to_workers, 'worker')}", style="bold yellow"
            )
        )
        lines.append(Text("  " + seen.request.explanation))
    return Panel(Group(*lines) if lines else Text("none yet", style="dim"), title="resizes", title_align="left")


def _steps(seen: Overview) -> Panel:
    styles = {"Succeeded": "green", "Resized": "green", "Failed": "red", "Running": "yellow"}
    text = Text(" → ").join(Text(step.name, style=styles.get(step.outcome, "")) for step in seen.steps)
    return Panel(text, title="steps of the pipeline", title_align="left")
