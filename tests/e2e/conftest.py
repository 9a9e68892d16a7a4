# SPDX-License-Identifier: Apache-2.0
"""A run of the command line as a user starts it, and what is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 240


@dataclass
class Run:
    """A started `kfp-volcano run`."""

    process: subprocess.Popen[str]
    out: Path

    def processes(self) -> list[psutil.Process]:
        """What runs for this run: each process whose environment, arguments or folder name its output folder."""
        mark = str(self.out)
        found = []
        for process in psutil.process_iter():
            try:
                told = [*process.cmdline(), *process.environ().values(), process.cwd()]
            except psutil.Error:
                continue
            if process.pid != os.getpid() and any(mark in text for text in told):
                found.append(process)
        return found

    def pods(self, part: str) -> list[psutil.Process]:
        """The processes of pods whose name holds `part`: the containers' own, not what watches over them."""
        return [
            process
            for process in self.processes()
            if part in _environment(process).get("KFP_VOLCANO_POD", "") and "shim" not in " ".join(_arguments(process))
        ]

    def actors(self, part: str) -> list[psutil.Process]:
        """The processes of Ray actors of this run whose name holds `part`."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [p for p in below if any(word.startswith("ray::") and part in word for word in _arguments(p))]

    def wait_until(self, what: Callable[[], Any], why: str) -> Any:
        """Wait for something that the run does; fails when the run ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = what()
            if found:
                return found
            if self.process.poll() is not None:
                pytest.fail(f"the run ended with {self.process.returncode} before {why}: {self.output()}")
            time.sleep(0.05)  # the run is another program: there is nothing to wait on
        return pytest.fail(f"{why} did not come")

    def end(self) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait(PATIENCE_S)

    def output(self) -> str:
        """What it printed."""
        return (self.out.parent / "output.txt").read_text()

    def result(self) -> dict[str, Any]:
        """The figures."""
        figures: dict[str, Any] = json.loads((self.out / "result.json").read_text())
        return figures

    def gone(self) -> None:
        """Nothing of the run is alive any more, within ten seconds."""
        _, alive = psutil.wait_procs(self.processes(), timeout=10)
        assert not alive, [(p.pid, _arguments(p)) for p in alive]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return dict(process.environ())
    except psutil.Error:
        return {}


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@pytest.fixture(name="start")
def _start(tmp_path: Path, root: Path) -> Iterator[Callable[..., Run]]:
    """Start `kfp-volcano` with arguments; whatever a failing test leaves is ended."""
    runs: list[Run] = []

    def start(*arguments: object, pipeline: Path | None = None) -> Run:
        out = tmp_path / f"run{len(runs)}" / "out"
        out.parent.mkdir()
        file = pipeline or root / "pipelines" / "elastic_training.py"
        command = [sys.executable, "-m", "kfp_volcano", "run", str(file), "--local", "--out", str(out)]
        with (out.parent / "output.txt").open("w") as output:
            process = subprocess.Popen(
                [*command, *map(str, arguments)],
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        runs.append(Run(process, out))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGTERM)
            try:
                run.process.wait(30)
            except subprocess.TimeoutExpired:
                run.process.kill()
