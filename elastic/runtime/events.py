# SPDX-License-Identifier: Apache-2.0
"""Where a process tells what it did and saw: `events/<owner>.jsonl` in the job folder.

::

    events = Events(job_dir, owner="resnet-core-0-1a2b3c4d", position=lambda: (state.steps, state.samples))
    events.add(Kind.RESIZED, "4 workers instead of 2", from_workers=2, to_workers=4)
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.events import Event, Kind, to_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["FOLDER", "Events", "Kind"]

FOLDER = "events"
"""Of the job folder."""

_LOUD = {
    *(Kind.NOT_FINITE, Kind.LOSS_SPIKE, Kind.GRADIENT_SPIKE, Kind.SLOW_DOWN),
    *(Kind.ROLLED_BACK, Kind.BATCHES_SKIPPED, Kind.RATE_LOWERED, Kind.GROWTH_STOPPED, Kind.SIZE_ASKED, Kind.STOPPED),
}
"""Kinds that a process's own log shows without being asked to: nothing else tells them there."""

_log = logging.getLogger(__name__)


class Events:
    """Appends to a process's log of operations, from any thread; never raises, and never holds training up.

    Each event is one write of the operating system to a file opened for appending, so a line is never mixed with
    another and a SIGKILL takes none back. Where the volume refuses, the process's own log says so once.

    Args:
        job_dir: the job folder; None: events go to the process's own log alone.
        owner: a name no other process has, as `Surroundings.owner`.
        position: steps and samples committed now; None for a process that does not train.
        clock: Unix seconds.
    """

    def __init__(
        self,
        job_dir: Path | None,
        *,
        owner: str,
        position: Callable[[], tuple[int, int]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = None if job_dir is None else job_dir / FOLDER / f"{owner}.jsonl"
        self._owner, self._position = owner, position
        self._clock = clock
        self._lock = threading.Lock()
        self._file: int | None = None
        self._torn = self._refused = False

    def add(self, kind: Kind, message: str, /, **facts: Any) -> None:
        """Tells of something that just happened.

        Args:
            kind: what it was.
            message: one sentence for people.
            facts: numbers and names behind it, as JSON holds them.
        """
        _log.log(logging.WARNING if kind in _LOUD else logging.INFO, "%s: %s", kind.value, message)
        if self._path is None:
            return
        step, samples = self._position() if self._position else (None, None)
        line = to_line(
            Event(
                kind=kind,
                time=self._clock(),
                message=message,
                step=step,
                samples=samples,
                facts=facts,
                owner=self._owner,
            )
        ).encode()
        try:
            with self._lock:
                self._append(line)
        except OSError as error:
            if not self._refused:
                _log.warning("the log of operations cannot be written: %s", error)
            self._refused = True

    def close(self) -> None:
        """Closes the file; what is added later opens it again."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _append(self, line: bytes) -> None:
        assert self._path is not None  # noqa: S101 - `add` has looked
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if self._torn:
            line = b"\n" + line
        written = os.write(self._file, line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError("the volume is full: an event was cut short")
