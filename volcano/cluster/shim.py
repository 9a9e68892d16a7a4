# SPDX-License-Identifier: Apache-2.0
"""Runs one container, start after start, and leaves nothing of it behind.

A program of its own on the standard library alone (`python -I -S shim.py`), one per container, in its own session.
Orders come as JSON lines on standard input and reports go as JSON lines to standard output:

    {"run": {"argv": [..], "env": {..}, "cwd": "..", "log": ".."}}    -> {"started": pid}
    {"stop": seconds}                                                 SIGTERM now, SIGKILL to all after that time
    (the container's program ends)                                    -> {"exited": code, "signal": number or 0}
    end of file (the host is gone, or done)                           kills everything at once and exits

It is the subreaper of all that a container starts, so that a daemonised grandchild is found, killed and reaped too:
as in Kubernetes, a container ends with its first program.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import time
from pathlib import Path
from typing import Any

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
_NOT_EXECUTED = 127
_READ_AT_ONCE = 65536

_libc = ctypes.CDLL(None, use_errno=True)


class Shim:
    """The container's program while it runs, and the lines to and from the host."""

    def __init__(self, orders: int, reports: int, wakeups: int) -> None:
        self._orders = orders
        self._reports = reports
        self._wakeups = wakeups
        self._main = 0
        self._log = ""
        self._kill_at: float | None = None
        self._unread = b""

    def serve(self) -> None:
        """Work until the host closes its end."""
        while True:
            ready, _, _ = select.select([self._orders, self._wakeups], [], [], self._patience())
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill_at = None
                _kill_descendants()
            if self._wakeups in ready:
                os.read(self._wakeups, _READ_AT_ONCE)
            if self._orders in ready and not self._obey():
                _end_descendants()
                return
            self._reap()

    def _patience(self) -> float | None:
        return None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _obey(self) -> bool:
        """Read and follow orders; False at the end of file."""
        data = os.read(self._orders, _READ_AT_ONCE)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "run" in order:
                self._start(order["run"])
            elif self._main:
                os.kill(self._main, signal.SIGTERM)
                self._kill_at = time.monotonic() + order["stop"]
        return bool(data)

    def _start(self, container: dict[str, Any]) -> None:
        self._log = container["log"]
        # Held back until the child has its own handlers, or a SIGTERM of the first moment would be ignored as ours are.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        pid = os.fork()
        if pid == 0:
            _become(container)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        self._main = pid
        self._report({"started": pid})

    def _reap(self) -> None:
        """Collect what has ended; when the container's program has, end the rest of the container."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._main:
                _end_descendants()
                self._main, self._kill_at = 0, None
                _end_line(self._log)
                code = os.waitstatus_to_exitcode(status)
                self._report({"exited": code if code >= 0 else 128 - code, "signal": max(0, -code)})

    def _report(self, report: dict[str, Any]) -> None:
        try:
            os.write(self._reports, json.dumps(report).encode() + b"\n")
        except BrokenPipeError:  # the host is gone; its end of the orders will say so, too
            return


def _become(container: dict[str, Any]) -> None:
    """In the child: turn into the container's program. Does not return."""
    try:
        os.setsid()
        _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        log = os.open(container["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.chdir(container["cwd"])
        os.execvpe(container["argv"][0], container["argv"], container["env"])  # noqa: S606  # what a container is
    except OSError as error:
        os.write(2, f"cannot start {container['argv'][0]!r}: {error}\n".encode())
    finally:
        os._exit(_NOT_EXECUTED)


def _end_line(log: str) -> None:
    """End the line in which a container's output broke off, as container runtimes do: it is a line of the log."""
    with contextlib.suppress(OSError), Path(log).open("rb+") as printed:
        size = printed.seek(0, os.SEEK_END)
        if size and printed.seek(size - 1) >= 0 and printed.read(1) != b"\n":
            printed.write(b"\n")


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


def _kill_descendants() -> None:
    for pid in _descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _end_descendants() -> None:
    """Kill and reap until there is no child left; what forks meanwhile is met in the next round."""
    while True:
        _kill_descendants()
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main() -> None:
    """Take over the host's pipes so that no container can inherit them, and serve."""
    orders, reports = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    wakeups, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    _libc.prctl(_SET_CHILD_SUBREAPER, 1)
    Shim(orders, reports, wakeups).serve()


if __name__ == "__main__":
    main()
