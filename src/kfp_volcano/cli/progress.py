# SPDX-License-Identifier: Apache-2.0
"""How far simulations are, on standard error; and standard output kept for what a command prints itself."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kfp_volcano.cli.verbosity import console, say
from kfp_volcano.volcano.launcher.story import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress as Bars
    from rich.progress import TaskID

__all__ = ["Lines", "Progress", "own_output", "progress"]

_LINE_S = 10.0
"""Between two lines about one simulation."""
_FRAME_S = 0.1
"""Between two looks of a terminal."""
_OUT, _ERR = 1, 2


class Progress(Protocol):
    """What hears how far things are."""

    def stage(self, what: str, done: int, total: int) -> None:
        """So many of several things are done, and this is being done now."""

    def clock(self, what: str, at_s: float, ended: int, jobs: int) -> None:
        """A simulation has come to this time, by which so many of its jobs have ended."""

    def say(self, text: str) -> None:
        """Something to be read."""


class Lines:
    """A line for each tenth of several things, and now and then one for the simulation under way.

    Args:
        now: The time in seconds.
        echo: Prints a line.
    """

    def __init__(self, now: Callable[[], float], echo: Callable[[str], None]) -> None:
        self._now, self._echo = now, echo
        self._stage = ("", -1)
        self._running = ("", -1)
        """The simulation under way, and its jobs that had ended when it was last heard of."""
        self._begun = self._told = now()

    def stage(self, what: str, done: int, total: int) -> None:
        """See `Progress`."""
        stage = (what, 10 * done // max(1, total))
        if stage != self._stage and done < total:
            self._echo(f"{what}: {done} of {total} done")
        self._stage = stage

    def clock(self, what: str, at_s: float, ended: int, jobs: int) -> None:
        """See `Progress`."""
        now, (name, before) = self._now(), self._running
        if what != name or ended < before:
            self._begun = self._told = now
        self._running = what, ended
        if now - self._told < _LINE_S or ended >= jobs:
            return
        self._told = now
        left = f", some {duration((now - self._begun) * (jobs - ended) / ended)} to go" if ended else ""
        self._echo(f"{what}: {ended:,} of {jobs:,} jobs have ended by {duration(at_s)} of the scenario{left}")

    def say(self, text: str) -> None:
        """See `Progress`."""
        self._echo(text)


class _Terminal:
    """A bar for several things, and one for the simulation under way."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._all = bars.add_task("", total=None, visible=False, clock="", unit="done")
        self._one: TaskID | None = None
        self._running = ("", -1)
        self._shown = 0.0

    def stage(self, what: str, done: int, total: int) -> None:
        """See `Progress`."""
        self._bars.update(self._all, description=what, completed=done, total=total, visible=total > 1)

    def clock(self, what: str, at_s: float, ended: int, jobs: int) -> None:
        """See `Progress`."""
        now = time.monotonic()
        was, before = self._running
        if self._one is None or what != was or ended < before:
            if self._one is not None:
                self._bars.remove_task(self._one)
            self._one = self._bars.add_task(what, total=jobs, clock="", unit="jobs ended")
        elif now - self._shown < _FRAME_S and ended < jobs:
            return
        self._running, self._shown = (what, ended), now
        self._bars.update(self._one, completed=ended, clock=f"at {duration(at_s)}")

    def say(self, text: str) -> None:
        """See `Progress`."""
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress() -> Iterator[Progress]:
    """Show how far things are on standard error: bars on a terminal, else lines."""
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    screen = console()
    if not screen.is_terminal:
        yield Lines(time.monotonic, say)
        return
    columns = (
        SpinnerColumn(),
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TextColumn("{task.fields[clock]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Bars(*columns, console=screen, transient=True) as bars:
        yield _Terminal(bars)


@contextmanager
def own_output() -> Iterator[None]:
    """Within it, what native libraries write to standard output goes to standard error.

    HiGHS prints a line now and then whatever it is told (`transformNewIntegerFeasibleSolution tmpSolver.run()`), which
    would stand in the midst of JSON. C's own buffer is emptied before standard output is given back.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(_OUT)
    except OSError:  # there is no standard output
        yield
        return
    try:
        os.dup2(_ERR, _OUT)
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, _OUT)
        os.close(kept)
