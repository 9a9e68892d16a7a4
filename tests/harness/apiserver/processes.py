# SPDX-License-Identifier: Apache-2.0
"""Server processes that end with the tests, however these end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

__all__ = ["Process", "free_ports"]

_TETHER = """
import ctypes, os, signal, sys
parent, command = int(sys.argv[1]), sys.argv[2:]
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != parent:  # it died before the line above
    sys.exit(1)
os.execv(command[0], command)
"""
"""Becomes the command, and is killed by the kernel when the process that started it dies."""

_STOP_TIMEOUT_S = 20.0
_LAST_LINES = 15
_LOOK_AGAIN_S = 0.05


class Process:
    """One server: a command, its log, and the handle to stop it; may be started again."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self._command = [str(part) for part in command]
        self._log = log
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._running is not None, f"{self.name} has not been started"
        return self._running.pid

    def start(self) -> None:
        """Start it; whether it serves is another question: `wait_until`."""
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which stop it in order
            )

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Look until `ready` says so. Raises RuntimeError with the end of the log if it ends or is too slow."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self._ended(_LOOK_AGAIN_S):
                raise RuntimeError(f"{self.name} ended before it was ready:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} was not ready within {timeout_s:.0f} s:\n{self.tail()}")

    def stop(self) -> None:
        """Ask it to end, and make sure that it does; nothing happens where it does not run."""
        if self._running is None:
            return
        self._running.terminate()
        if not self._ended(_STOP_TIMEOUT_S):
            self.kill()
        self._running = None

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._running is not None:
            self._running.send_signal(signal.SIGKILL)
            self._running.wait()
            self._running = None

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:])

    def _ended(self, within_s: float) -> bool:
        assert self._running is not None, f"{self.name} has not been started"
        try:
            self._running.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """As many different ports of the loopback interface that nobody listens on."""
    with ExitStack() as open_sockets:
        taken = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]
