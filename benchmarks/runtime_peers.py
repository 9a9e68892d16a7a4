# SPDX-License-Identifier: Apache-2.0
"""Resizing by others' means: elastic torchrun, and checkpoint, stop, start at the new size."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["measure"]

_SCRIPT = Path(__file__).with_name("runtime_peer.py")
_EVERY = 50
_ARGUMENTS = (str(_EVERY), "0.02", "4096", "64")
_PATIENCE_S = 120.0
"""A peer that has not come back by then is taken to have paused so long, and is not asked again."""
_SETTLE_STEPS = 5
_LEAST, _MOST = 2, 4


def measure(folder: Path, random: Random, events: int, say: Callable[[str], None]) -> dict[str, list[float]]:
    """The pauses of each peer, in seconds, over so many events; workers are processes started anew."""
    if not events:
        return {}
    found: dict[str, list[float]] = {}
    for name, kind in (
        (f"torchrun --nnodes={_LEAST}:{_MOST}, a checkpoint each {_EVERY} steps", Torchrun),
        ("checkpoint, stop all, start all", Restart),
    ):
        place = folder / kind.__name__
        place.mkdir()
        peer = kind(place)
        try:
            peer.begin(kind.first)
            found[name] = []
            while len(found[name]) < min(events, kind.most_events):
                pause = _event(peer, random, name, say)
                found[name].append(_PATIENCE_S if pause is None else pause)
                if pause is None:
                    break
        finally:
            peer.end()
    return found


def _event(peer: Torchrun | Restart, random: Random, name: str, say: Callable[[str], None]) -> float | None:
    """The pause around what happens next to a peer; None: it did not come back."""
    joins = ["join"] if peer.workers < _MOST and peer.takes_joins else []
    kinds = joins + (["leave", "kill"] if peer.workers > _LEAST else [])
    kind = random.choice(kinds)
    before = peer.commits()
    began = before[-1][1]
    peer.change(kind)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        after = [each for each in peer.commits()[len(before) :] if each[2] == peer.workers]
        if len(after) >= _SETTLE_STEPS:
            break
        if time.monotonic() > deadline:
            say(f"{name}: {kind} -> {peer.workers}, has not come back in {_PATIENCE_S:g} s")
            return None
        time.sleep(0.1)
    times = [at for _, at, _ in peer.commits() if at >= began]
    usual = median(b - a for a, b in pairwise([at for _, at, _ in before[-50:]]))
    pause = max(b - a for a, b in pairwise(times)) - usual
    say(f"{name}: {kind} -> {peer.workers}, {pause:.2f} s")
    return pause


class _Peer:
    """Commits, as the script's first rank notes them."""

    takes_joins = True
    first = 3
    """Workers to begin with."""
    most_events = 1000

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.workers = 0

    def commits(self) -> list[tuple[int, float, int]]:
        """Step, time and workers of each step that was reached for the first time."""
        found: list[tuple[int, float, int]] = []
        path = self._folder / "commits"
        for line in path.read_text().splitlines() if path.exists() else ():
            step, world, at = line.split()
            if not found or int(step) > found[-1][0]:
                found.append((int(step), float(at), int(world)))
        return found

    def _wait(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while len([each for each in self.commits() if each[2] == self.workers]) < 10 * _SETTLE_STEPS:
            if time.monotonic() > deadline:
                raise TimeoutError("the peer did not begin")
            time.sleep(0.1)


class Torchrun(_Peer):
    """One agent a worker, as with one pod a worker; the rendezvous' store is apart, so that any worker can go.

    Workers only leave and are killed: beside a store that no agent keeps, the agents of torch 2.15 that are there and
    one that comes wait for each other without end once a worker has left.
    """

    takes_joins = False
    first = _MOST
    most_events = _MOST - _LEAST

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._port = _free_port()
        program = (
            f"import time; from torch.distributed import TCPStore\n"
            f"store = TCPStore('127.0.0.1', {self._port}, is_master=True, wait_for_workers=False)\ntime.sleep(1e6)"
        )
        self._store = subprocess.Popen([sys.executable, "-c", program])
        self._agents: list[subprocess.Popen[bytes]] = []
        self._gone: list[subprocess.Popen[bytes]] = []

    def begin(self, workers: int) -> None:
        """Returns when so many train."""
        for _ in range(workers):
            self._add()
        self.workers = workers
        self._wait()

    def change(self, kind: str) -> None:
        """A worker comes or goes."""
        if kind == "join":
            self._add()
            self.workers += 1
            return
        agent = self._agents.pop()
        self._gone.append(agent)
        self.workers -= 1
        if kind == "leave":
            agent.terminate()
        else:
            _kill(agent)

    def _add(self) -> None:
        command = [
            *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={_LEAST}:{_MOST}", "--nproc-per-node=1"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}", "--rdzv-id=peer"),
            *("--rdzv-conf=is_host=false,last_call_timeout=3", "--max-restarts=1000", "--monitor-interval=0.1"),
            *("--local-addr=127.0.0.1", str(_SCRIPT), str(self._folder), *_ARGUMENTS),
        ]
        log = (self._folder / f"agent-{len(self._agents)}.log").open("ab")
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._agents.append(subprocess.Popen(command, env=environ, start_new_session=True, stdout=log, stderr=log))
        log.close()

    def end(self) -> None:
        """No process of it is left."""
        for agent in self._agents + self._gone:
            _kill(agent)
            agent.wait()
        self._store.kill()
        self._store.wait()


def _kill(agent: subprocess.Popen[bytes]) -> None:
    """Kills an agent and its workers, which are of sessions of their own, as the end of its pod would."""
    with suppress(psutil.NoSuchProcess):
        for process in [*psutil.Process(agent.pid).children(recursive=True), psutil.Process(agent.pid)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


class Restart(_Peer):
    """All stop after a checkpoint (or where one was killed), and all start at the new size."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._runs = count()

    def begin(self, workers: int) -> None:
        """Returns when so many train."""
        self.workers = workers
        self._start()
        self._wait()

    def change(self, kind: str) -> None:
        """All anew, with one more or one less."""
        if kind == "kill":
            self._processes[-1].kill()
        self._stop(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        self.workers += 1 if kind == "join" else -1
        self._start()

    def _start(self) -> None:
        port, log = _free_port(), (self._folder / f"{next(self._runs)}.log").open("wb")
        for rank in range(self.workers):
            environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
            environ |= {"WORLD_SIZE": str(self.workers), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, str(_SCRIPT), str(self._folder), *_ARGUMENTS]
            self._processes.append(subprocess.Popen(command, env={**os.environ, **environ}, stdout=log, stderr=log))
        log.close()

    def _stop(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def end(self) -> None:
        """No process of it is left."""
        self._stop(signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
