# SPDX-License-Identifier: Apache-2.0
"""A process of the simulation: really forked, and really killed by SIGKILL, so that nothing it had to say is said.

Both ends speak over a pipe. The process asks, the simulation answers: one request of the API server, one piece of a
stream, one line on the terminal, or time to pass. While it waits for an answer it does nothing.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import select
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kfp_volcano.volcano.cluster.kubernetes.api import Patience
from kfp_volcano.volcano.cluster.kubernetes.connection import Answer, Silence
from kfp_volcano.volcano.cluster.kubernetes.request import Request
from simulation.threads import Turns

__all__ = ["Inside", "Process"]

_PR_SET_PDEATHSIG = 1
_HANGS_S = 60.0
"""Real seconds."""
ANSWER_S = 10.0
"""How long a process waits for an answer before it takes the connection for dead."""


class _Pipe:
    """Whole messages in both directions."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes

    def send(self, message: object) -> None:
        data = pickle.dumps(message)
        os.write(self._writes, struct.pack("!I", len(data)) + data) if len(data) < 4000 else self._send_long(data)

    def _send_long(self, data: bytes) -> None:
        data = struct.pack("!I", len(data)) + data
        while data:
            data = data[os.write(self._writes, data) :]

    def receive(self) -> Any:
        (size,) = struct.unpack("!I", self._read(4))
        return pickle.loads(self._read(size))

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            if not select.select([self._reads], [], [], _HANGS_S)[0]:
                raise TimeoutError("the other end works without asking, or waits for ever")
            part = os.read(self._reads, size)
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        os.close(self._reads)
        os.close(self._writes)


class Inside:
    """The world, as a process sees it."""

    def __init__(self, pipe: _Pipe, now: float, seed: int) -> None:
        self._pipe = pipe
        self._line = ""
        self.seed = seed
        self.turns = Turns(now, self._sleep, self._failed)
        self.patience = Patience(
            answer_s=ANSWER_S, clock=self.turns.time, sleep=self.turns.sleep, jitter=Random(seed).random
        )

    def call(self, *message: object) -> Any:
        """Ask, and wait for the answer."""
        self._pipe.send(message)
        return self._pipe.receive()

    # As the adapter's `Connection`.
    def send(self, request: Request, *, read_s: float) -> Answer:
        what, *rest = self.call("request", request)
        if what == "answer":
            return Answer(rest[0], rest[1], rest[2])
        self._no_answer(rest[0], read_s)
        raise AssertionError

    @contextmanager
    def open(self, request: Request, *, read_s: float) -> Iterator[tuple[Answer, Iterator[bytes]]]:
        what, *rest = self.call("open", request)
        if what == "answer":
            yield Answer(rest[0], rest[1], b""), iter([rest[2]])
            return
        if what == "silence":
            self._no_answer(rest[0], read_s)
        number = rest[0]
        try:
            yield Answer(200, {}, b""), self._chunks(number, read_s)
        finally:
            self.call("close", number)

    def _chunks(self, number: int, silence_s: float) -> Iterator[bytes]:
        deadline = self.turns.now + silence_s
        while True:
            what, data = self.call("read", number)
            if what == "end":
                return
            if what == "cut":
                raise Silence("reset", sent=True)
            if data:
                deadline = self.turns.now + silence_s
                yield data
            elif self.turns.now >= deadline:
                raise Silence("nothing comes", sent=True)
            else:
                self.turns.await_news(number, deadline)

    def _no_answer(self, how: str, read_s: float) -> None:
        if how == "stalled":
            self.turns.sleep(read_s)
        raise Silence(how, sent=how != "refused")

    # As a terminal.
    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self.call("print", line)
        return len(text)

    def flush(self) -> None: ...

    def _sleep(self, until: float) -> tuple[float, list[int]]:
        now, news = self.call("sleep", until)
        return now, news

    def _failed(self, error: BaseException) -> None:
        self.call("failed", "".join(traceback.format_exception(error)))


@dataclass
class Process:
    """A process, as the simulation sees it."""

    name: str
    pid: int
    pipe: _Pipe
    sleeps_until: float
    streams: dict[int, Any] = field(default_factory=dict)
    stalled_until: float = 0.0
    ended: int | None = None
    result: Any = None

    @classmethod
    def start(cls, name: str, now: float, seed: int, main: Callable[[Inside], Any]) -> Process:
        """Fork; `main` runs in the child, and what it returns or the code it exits with is its end."""
        to_child, to_parent = os.pipe(), os.pipe()
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # it does not outlive the simulation
            gc.disable()  # it would touch, and so copy, all of the parent's memory
            code = 70
            try:
                os.close(to_child[1])
                os.close(to_parent[0])
                pipe = _Pipe(to_child[0], to_parent[1])
                pipe.receive()  # its first turn
                code = _child(pipe, now, seed, main)
            finally:
                os._exit(code)
        os.close(to_child[0])
        os.close(to_parent[1])
        return cls(name, pid, _Pipe(to_parent[0], to_child[1]), sleeps_until=now)

    def kill(self) -> None:
        """SIGKILL, and nothing of it is left."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pipe.close()
        self.ended = -signal.SIGKILL

    def reap(self, code: int) -> None:
        """It has ended by itself."""
        os.waitpid(self.pid, 0)
        self.pipe.close()
        self.ended = code


def _child(pipe: _Pipe, now: float, seed: int, main: Callable[[Inside], Any]) -> int:
    inside = Inside(pipe, now, seed)
    result = None
    sys.stdout = sys.stderr = inside  # type: ignore[assignment]
    try:
        result = main(inside)
        code = 0
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    except BaseException as error:  # noqa: BLE001  # a traceback is a fault
        inside._failed(error)
        code = 1
    pipe.send(("exit", code, result))
    return code
