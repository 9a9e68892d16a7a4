"""A Job of real processes: a coordinator and workers that come and go."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import signal
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.elastic import ledger
from kfp_volcano.elastic.sharding import Plan
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.process import BaseProcess

SCRIPT = Path(__file__).with_name("worker.py")
COORDINATOR = Path(__file__).with_name("coordinator.py")
PATIENCE_S = 120.0
_networks = count(1)


class Job:
    """One coordinator, any number of workers, one job folder; each pod has a loopback address of its own."""

    def __init__(self, folder: Path, epochs: int, pace: float) -> None:
        self.folder = folder
        self.epochs, self.pace = epochs, pace
        # Imported once, in the server that all processes are forked from.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch._dynamo", "kfp_volcano.elastic.runtime.coordinator"])
        self._network = f"127.{64 + os.getpid() % 128}.{next(_networks)}"
        self.processes: dict[str, BaseProcess] = {}

    def start_coordinator(self) -> None:
        """Returns when it listens."""
        ready = self._context.Event()
        settings = {"HOST": f"{self._network}.1", "READY": ready, "REPORTS": str(self.folder / "reports.jsonl")}
        self._start("coordinator", COORDINATOR, settings)
        assert ready.wait(PATIENCE_S)

    def start(self, pod: str, *, script: Path = SCRIPT, sharding: str = "uniform", **settings: Any) -> None:
        """Starts a worker, with these globals for its script; a killed one's name may be used again."""
        index = int(pod.rpartition("-")[2])
        environ = {
            names.ENV_POD: pod,
            names.ENV_POD_IP: f"{self._network}.{10 + index}",
            names.ENV_COORDINATOR: f"{self._network}.1",
            names.ENV_JOB_DIR: str(self.folder),
            names.ENV_ELASTICITY: json.dumps({"checkpoint_every_s": 0.5, "sharding": sharding}),
        }
        self._start(pod, script, {"ENVIRON": environ, "EPOCHS": self.epochs, "PACE": self.pace, **settings})

    def _start(self, name: str, script: Path, settings: dict[str, Any]) -> None:
        process = self._context.Process(target=runpy.run_path, args=(str(script), settings, "__main__"), name=name)
        process.start()
        self.processes[name] = process

    def signal(self, pod: str, number: int) -> None:
        pid = self.processes[pod].pid
        assert pid is not None
        os.kill(pid, number)

    def kill(self, pod: str) -> None:
        self.signal(pod, signal.SIGKILL)
        self.processes[pod].join(PATIENCE_S)

    def exit_code(self, pod: str) -> int | None:
        """Waits for a worker to end."""
        self.processes[pod].join(PATIENCE_S)
        return self.processes[pod].exitcode

    def shares(self) -> dict[int, dict[str, int]]:
        """How many samples each pod fed, by the step; of the tries at it, the last that is on file."""
        found: dict[int, dict[str, int]] = {}
        for path in (self.folder / "ledger").glob("*.jsonl"):
            for line in path.read_text().splitlines():
                if '"feed"' in line:
                    entry = json.loads(line)
                    found.setdefault(entry["step"], {})[path.name.rpartition("-")[0]] = len(entry["ids"])
        return found

    def commits(self) -> list[dict[str, Any]]:
        """What the ledgers say now."""
        found = []
        for path in (self.folder / "ledger").glob("*.jsonl"):
            *lines, _torn = path.read_text().split("\n")
            found += [json.loads(line) for line in lines if '"commit"' in line]
        return found

    def wait(self, until: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Waits until the commits satisfy a condition."""
        deadline = time.monotonic() + PATIENCE_S
        while not until(self.commits()):
            assert time.monotonic() < deadline, "the workers did not come so far"
            assert any(process.is_alive() for name, process in self.processes.items() if name != "coordinator")
            time.sleep(0.02)

    def wait_for_steps(self, more: int, *, world: int | None = None) -> None:
        """Waits until so many more steps are committed, by that many workers."""

        def reached() -> int:
            return len({entry["step"] for entry in self.commits() if world in {None, entry["world"]}})

        start = reached()
        self.wait(lambda _: reached() >= start + more)

    def audit(self) -> ledger.Audit:
        manifest = json.loads((self.folder / "final" / "manifest.json").read_text())
        files = {path.name: path.read_text().splitlines() for path in (self.folder / "ledger").glob("*.jsonl")}
        plan = Plan(size=manifest["size"], batch=manifest["batch"], epochs=manifest["epochs"], seed=manifest["seed"])
        return ledger.audit(files, manifest, expected=lambda before, count: plan.ids(plan.cursor(before), count))

    def end(self) -> None:
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
            process.join(PATIENCE_S)
            process.close()


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Makes Jobs whose coordinator runs; none of their processes outlives the test."""
    jobs: list[Job] = []

    def make(*, epochs: int = 12, pace: float = 0.01) -> Job:
        folder = tmp_path / f"job-{len(jobs)}"
        folder.mkdir()
        jobs.append(Job(folder, epochs, pace))
        jobs[-1].start_coordinator()
        return jobs[-1]

    yield make
    for job in jobs:
        job.end()


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], ledger.Audit]:
    """The same training by one worker outside any Job: what every other way must equal."""

    def train(epochs: int) -> ledger.Audit:
        job = Job(tmp_path / "alone", epochs, 0.0)
        monkeypatch.setenv(names.ENV_JOB_DIR, str(job.folder))
        runpy.run_path(str(SCRIPT), {"EPOCHS": epochs})
        return job.audit()

    return train
