# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano autoscaler run` as a process beside a cluster, with all that it starts."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from anywhere.ground import Ground

__all__ = ["Autoscaler"]

PATIENCE_S = 180.0
"""How long it may take to start on a busy machine, or to say something."""


class Autoscaler:
    """A replica that leads a ground's queues for its namespace; what it logs is heard."""

    def __init__(
        self, kubeconfig: Path, ground: Ground, name: str, folder: Path, options: Sequence[str] = (), **more: Any
    ) -> None:
        self.name = name
        self.decisions = folder / name
        command = [sys.executable, "-m", "kfp_volcano", "autoscaler", "run", "--kubeconfig", str(kubeconfig)]
        command += ["--namespace", ground.namespace, "--identity", name, "--decisions", str(self.decisions)]
        command += ["--actors", "1", "--metrics-port", "0", "--log-format", "json", *options]
        for queue in ground.queues:
            command += ["--queue", queue]
        self._said: list[dict[str, Any]] = []
        self._raw: list[str] = []
        self._news = threading.Condition()
        self._over = False
        self._left: list[psutil.Process] = []
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **more)
        assert self.process.stderr is not None
        self._ears = threading.Thread(target=self._hear, args=(self.process.stderr,), name=name, daemon=True)
        self._ears.start()

    @property
    def alive(self) -> bool:
        """Whether its first process runs."""
        return self.process.poll() is None

    def said(self, words: str, **fields: str) -> list[dict[str, Any]]:
        """What it has said so far with these words and fields."""
        with self._news:
            return [line for line in self._said if words in line["message"] and fields.items() <= line.items()]

    def until_said(self, words: str, times: int = 1, **fields: str) -> dict[str, Any]:
        """Wait until it has said that so often; the last time."""

        def found() -> bool:
            return len(self.said(words, **fields)) >= times

        with self._news:
            heard = self._news.wait_for(lambda: self._over or found(), PATIENCE_S)
            assert heard, (words, fields, self._raw)
            assert found(), (words, fields, self._raw)
        return self.said(words, **fields)[times - 1]

    @property
    def actor(self) -> int:
        """The process of its actor, once it is at work; the newest where it was killed."""
        self.until_said("actor 0 is at work")
        with self._news:
            lines = [line["message"] for line in self._said if line["logger"].endswith(".supervisor")]
        return int(next(line for line in reversed(lines) if "process" in line).rpartition(" ")[2])

    def processes(self) -> list[psutil.Process]:
        """All its processes, the first one first."""
        try:
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """End it without a warning; what it has started ends by itself, see `gone`."""
        self._left = self.processes()[1:]
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def end(self) -> int:
        """Have it end; its exit code."""
        self._left = self.processes()[1:]
        self.process.terminate()
        return self.process.wait(PATIENCE_S)

    def gone(self) -> None:
        """See that nothing is left of it once it has ended: agents of Ray's look once a minute for whom they serve."""
        left, deadline = self._left, time.monotonic() + PATIENCE_S
        while left and time.monotonic() < deadline:
            left = [each for each in psutil.wait_procs(left, timeout=0.2)[1] if not _is_dead(each)]
        for each in left:
            each.kill()
        self._ears.join(PATIENCE_S)
        assert not left, f"of {self.name} are left {left}: {self._raw}"

    def _hear(self, stream: IO[str]) -> None:
        with stream:
            for text in stream:
                with self._news:
                    self._raw.append(text.rstrip())
                    if text.startswith("{"):
                        self._said.append(json.loads(text))
                    self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()


def _is_dead(process: psutil.Process) -> bool:
    """Whether it is gone but for whoever is to take note of that."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True
