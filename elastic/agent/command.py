# SPDX-License-Identifier: Apache-2.0
"""The command of a pod, with all that it starts: whatever it forks, daemons and sessions included, ends with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["CANNOT_START", "Command"]

CANNOT_START = 127
_SET_CHILD_SUBREAPER = 36
"""Of prctl(2): orphans below this process become its children, as they do below a container's first one anyway."""


class Command:
    """A started command.

    Args:
        argv: what to start.
        env: its whole environment.
        on_end: called once with the exit code (128 and the signal's number where it was killed), from a thread of its
            own, when all that the command started is gone.

    Raises:
        OSError: there is no such program.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], on_end: Callable[[int], None]) -> None:
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
        self._process = subprocess.Popen(argv, env=dict(env), start_new_session=True)
        self._on_end = on_end
        self._ended = False
        self._lock = threading.Lock()
        self._killer: threading.Timer | None = None
        threading.Thread(target=self._wait, name="command", daemon=True).start()

    def stop(self, grace_s: float) -> None:
        """Ask it to end (SIGTERM to its group), and kill what is left after a time. Returns at once."""
        with self._lock:
            if self._ended:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            self._killer = threading.Timer(grace_s, self._kill)
            self._killer.daemon = True
            self._killer.start()

    def _kill(self) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self._ended:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _wait(self) -> None:
        code = self._process.wait()
        with self._lock:
            self._ended = True
        if self._killer is not None:
            self._killer.cancel()
        # Ports, devices and files are the next generation's.
        _end_descendants()
        self._on_end(code if code >= 0 else 128 - code)


def _end_descendants() -> None:
    """Kill and reap until no process is left below this one; what forks meanwhile is met in the next round."""
    while True:
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _descendants() -> list[int]:
    """Every living process below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:  # it has ended meanwhile
                continue
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    unvisited = [os.getpid()]
    while unvisited:
        below = children.get(unvisited.pop(), [])
        found += below
        unvisited += below
    return found
