# SPDX-License-Identifier: Apache-2.0
"""Following a Job for a day and a million lines costs no memory, and asks the API server a bounded number of times.

In the simulation's time; memory is that of the step's process. A quarter of the day, unless all is asked for.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from simulation.process import ANSWER_S, Inside, Process
from simulation.run import Simulation
from simulation.steps import step

HOUR_S = 3600.0
EVERY_S = 8.0
"""Less than it takes to think that a connection has died."""
HOURS = 24 if os.environ.get("HYPOTHESIS_PROFILE") == "full" else 6
LINES = 1_000_000 * HOURS // 24
MOST_GROWTH_BYTES = 20 << 20
PODS = 7
SILENCES = round(HOURS * HOUR_S / ANSWER_S)
"""How often a stream that says nothing is taken for dead and opened anew."""
MOST_CALLS = {
    "train watch Job": HOURS * 125,
    "train watch PodGroup": HOURS * 125,
    "train watch Pod": HOURS * 125,
    "train patch ConfigMap": HOURS * 1_800,  # each PRINT_S at most
    "train patch Lease": HOURS * 375,  # each third of its term
    "train list Event": HOURS * 125,
    "train list Node": HOURS * 63,
    "train get Pod": PODS * SILENCES,
    "train get Pod/log": 2 * PODS * SILENCES,
}


class Tally:
    """A terminal that only counts lines, for each would be a message to the simulation."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._lines = 0

    def write(self, text: str) -> int:
        self._lines += text.count(" | step ")
        if " | step " in text and self._lines % 1000 == 0:
            self._inside.call("print", str(self._lines))
        return len(text)

    def flush(self) -> None: ...


class Day(Simulation):
    """A Job of one talkative worker and others that are silent, followed for a day without a fault."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.faults.on = False
        self.said = self.printed_lines = 0
        self.memory: list[int] = []
        self.nodes._print = self._talk  # type: ignore[method-assign]
        self.nodes._restart = lambda pod: None  # type: ignore[method-assign]

    def _talk(self, pod: dict[str, Any]) -> None:
        if pod["metadata"]["name"].endswith("core-0"):
            runs = self.server.runs[pod["metadata"]["uid"]]
            for _ in range(round(LINES * EVERY_S / (HOURS * HOUR_S))):
                runs[-1].lines.append((int(self.now * 1e9), f"step {self.said}: loss 0.1234, 100 samples/s"))
                self.said += 1
            self.at(EVERY_S, lambda: self._talk(pod))

    def _print(self, process: Process, text: str) -> bool:
        self.printed_lines = int(text) if text.isdigit() else self.printed_lines
        process.pipe.send(None)
        return True

    def _start_autoscaler(self, number: int) -> None: ...

    def _look(self, process: Process) -> None:
        resident = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.memory.append(resident)
        self.at(HOUR_S, lambda: self._look(process))

    def day(self) -> None:
        def collecting(inside: Inside) -> Any:
            gc.enable()
            sys.stdout = Tally(inside)  # type: ignore[assignment]
            return step("train-3", attempt=0, last=True, folder=self.folder)(inside)

        self._start("submit")
        while "submit" not in self.ends:
            self._turn()
        self._events.clear()
        self._settle_again()
        process = Process.start("train-3#0", self.now, 1, collecting)
        self._processes.append(process)
        self._current = process.name
        self.at(HOUR_S, lambda: self._look(process))
        ends_at = self.now + HOURS * HOUR_S
        try:
            while self.now < ends_at and not self.problems:
                self._turn()
        finally:
            for each in self._alive():
                each.kill()

    def _settle_again(self) -> None:
        self.nodes._settling = False
        self.nodes.notice()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_stays_flat_and_calls_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an hour to warm up it grows by less than 20 MB, and every line is printed."""
    monkeypatch.setattr("simulation.run.LONGEST_S", 30 * HOUR_S)
    monkeypatch.setattr("simulation.run._MOST_CALLS", 10**6)
    run = Day(1, tmp_path)
    run.day()
    assert not run.problems
    assert run.said >= LINES * 0.99
    assert run.printed_lines >= run.said - 2000
    assert len(run.memory) >= HOURS - 1
    assert max(run.memory) - run.memory[0] < MOST_GROWTH_BYTES, [each >> 20 for each in run.memory]
    calls = {site: run.faults.met[site] for site in MOST_CALLS}
    assert all(calls[site] <= most for site, most in MOST_CALLS.items()), calls
    others = {"train print", "train get Pod", "train get Pod/log"}
    assert sum(count for site, count in run.faults.met.items() if site not in others) <= HOURS * 2_900, run.faults.met
