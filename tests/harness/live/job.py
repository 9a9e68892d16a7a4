# SPDX-License-Identifier: Apache-2.0
"""A Job of real processes: a coordinator and workers that come and go."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import runpy
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic import ledger
from kfp_volcano.elastic.sharding import Plan
from kfp_volcano.schemas import names
from kfp_volcano.schemas.events import read as read_events
from live.network import Loopback, Network, enter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.process import BaseProcess

    from kfp_volcano.elastic.sharding import Order
    from kfp_volcano.schemas.events import Event

__all__ = ["PATIENCE_S", "Job"]

PATIENCE_S = 120.0
_COORDINATOR = Path(__file__).with_name("coordinator.py")
_POLL_S = 0.02


class Job:
    """One coordinator, any number of workers, one job folder; each pod has an address of its own.

    Args:
        folder: of the Job; is made.
        script: the training script, run by `runpy` with ENVIRON, and what `given` holds, as globals.
        given: for the script.
        settings: what the spec tells training (`KFP_VOLCANO_ELASTICITY`).
        network: where the pods are.
    """

    def __init__(
        self,
        folder: Path,
        script: Path,
        given: Mapping[str, Any],
        *,
        settings: Mapping[str, Any] | None = None,
        network: Network | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.processes: dict[str, BaseProcess] = {}
        """By name: a pod's, or POD/RANK where it has several."""
        self.network = network or Loopback()
        self._script, self._given = script, dict(given)
        self._settings = dict(settings or {"checkpoint_every_s": 0.5})
        # Imported once, in the server that all processes are forked from.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch._dynamo", "kfp_volcano.elastic.runtime.coordinator"])
        self._commits: list[dict[str, Any]] = []
        self._read: dict[Path, int] = {}

    def start_coordinator(self) -> None:
        """Returns when it listens."""
        ready = self._context.Event()
        given = {"HOST": self.network.address(1), "READY": ready, "REPORTS": str(self.folder / "reports.jsonl")}
        self._start("coordinator", 1, _COORDINATOR, given)
        if not ready.wait(PATIENCE_S):
            raise TimeoutError("the coordinator does not listen")

    def start(self, pod: str, processes: int = 1, *, script: Path | None = None, **more: Any) -> None:
        """Starts a worker, its processes as torchrun does; a killed one's name may be used again."""
        index = self.index(pod)
        environ = {
            names.ENV_POD: pod,
            names.ENV_POD_IP: self.network.address(index),
            names.ENV_COORDINATOR: self.network.address(1),
            names.ENV_JOB_DIR: str(self.folder),
            names.ENV_ELASTICITY: json.dumps(self._settings),
        }
        script, given = script or self._script, {**self._given, **more}
        if processes == 1:
            self._start(pod, index, script, {**given, "ENVIRON": environ})
            return
        port = _free_port()
        for rank in range(processes):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
            told = {**environ, **{name: str(value) for name, value in {**place, **meeting}.items()}}
            self._start(f"{pod}/{rank}", index, script, {**given, "ENVIRON": told})

    @staticmethod
    def index(pod: str) -> int:
        """Of a pod in the network."""
        return 1 if pod == "coordinator" else 10 + int(pod.rpartition("-")[2])

    def _start(self, name: str, index: int, script: Path, given: dict[str, Any]) -> None:
        arguments = (self.network.namespace(index), str(script), given)
        process = self._context.Process(target=_run, args=arguments, name=name)
        process.start()
        self.processes[name] = process

    def signal(self, pod: str, number: int) -> None:
        """Sends a signal to a pod's process."""
        pid = self.processes[pod].pid
        if pid is not None:
            os.kill(pid, number)

    def kill(self, pod: str) -> None:
        """Returns when it is dead."""
        self.signal(pod, signal.SIGKILL)
        self.processes[pod].join(PATIENCE_S)

    def exit_code(self, pod: str) -> int | None:
        """Waits for a worker to end."""
        self.processes[pod].join(PATIENCE_S)
        return self.processes[pod].exitcode

    def alive(self) -> list[str]:
        """Workers whose process runs."""
        return [name for name, process in self.processes.items() if name != "coordinator" and process.is_alive()]

    def commits(self) -> list[dict[str, Any]]:
        """What the ledgers say now, in the order in which it was read."""
        for path in sorted((self.folder / "ledger").glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, _, torn = file.read().rpartition(b"\n")
                self._read[path] = file.tell() - len(torn)
            self._commits += [json.loads(line) for line in whole.split(b"\n") if b'"commit"' in line]
        return self._commits

    def wait(self, until: Callable[[list[dict[str, Any]]], bool], *, patience_s: float = PATIENCE_S) -> None:
        """Waits until the commits satisfy a condition."""
        deadline = time.monotonic() + patience_s
        while not until(self.commits()):
            if time.monotonic() > deadline or not self.alive():
                raise TimeoutError("the workers did not come so far")
            time.sleep(_POLL_S)

    def wait_for_steps(self, more: int, *, world: int | None = None) -> None:
        """Waits until so many more steps are committed, by that many workers."""

        def reached() -> int:
            return len({entry["step"] for entry in self.commits() if world in {None, entry["world"]}})

        start = reached()
        self.wait(lambda _: reached() >= start + more)

    def events(self) -> list[Event]:
        """The log of operations."""
        return read_events({path.name: path.read_text().splitlines() for path in self.folder.glob("events/*.jsonl")})

    def shares(self) -> dict[int, dict[str, int]]:
        """How many samples each pod fed, by the step; of the tries at it, the last that is on file."""
        found: dict[int, dict[str, int]] = {}
        for path in (self.folder / "ledger").glob("*.jsonl"):
            for line in path.read_text().splitlines():
                if '"feed"' in line:
                    entry = json.loads(line)
                    found.setdefault(entry["step"], {})[path.name.rpartition("-")[0]] = len(entry["ids"])
        return found

    def audit(self, manifest: Path | None = None, *, order: Order | None = None) -> ledger.Audit:
        """Adds up the ledgers behind the final weights, or those with another manifest."""
        about = json.loads((manifest or self.folder / "final" / "manifest.json").read_text())
        files = {path.name: path.read_text().splitlines() for path in (self.folder / "ledger").glob("*.jsonl")}
        said = {key: about[key] for key in ("size", "batch", "epochs", "seed", "last")}
        plan = Plan(**said, order=order)
        return ledger.audit(files, about, expected=lambda before, count: plan.ids(plan.cursor(before), count))

    def end(self) -> None:
        """No process of it is left."""
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
            process.join(PATIENCE_S)
            process.close()
        self.processes.clear()
        self.network.close()


def _free_port() -> int:
    """A port that nobody listens on, and that no connection is given while it is not listened on yet."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with contextlib.suppress(OSError), socket.socket() as chosen:
            chosen.bind(("", port))
            return port


def _run(namespace: Path | None, script: str, given: dict[str, Any]) -> None:
    enter(namespace)
    runpy.run_path(script, given, "__main__")
