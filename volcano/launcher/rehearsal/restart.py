# SPDX-License-Identifier: Apache-2.0
"""The scenario of strategy restart: told to leave, begun again at another size, killed, stopped and started anew."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.volcano.launcher.rehearsal.stage import Stage
    from kfp_volcano.volcano.launcher.rehearsal.verdict import Verdict

__all__ = ["play"]

STEPS = 6
"""Steps of each process before something happens to it."""


@dataclass(slots=True)
class _Process:
    """One process of the script, by what it recorded."""

    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def began(self) -> float:
        return float(self.events[0]["time"])

    @property
    def world(self) -> int:
        return int(self.events[0]["world"])

    @property
    def steps(self) -> int:
        return int(self.events[-1]["steps"])

    def at(self, kind: str) -> float | None:
        """When something was recorded first."""
        return next((float(each["time"]) for each in self.events if each["kind"] == kind), None)

    def files(self, kind: str) -> dict[str, dict[str, Any]]:
        """The last time that each file was written or read."""
        return {each["path"]: each for each in self.events if each["kind"] == kind}


def play(stage: Stage, verdict: Verdict, *, grace_s: float) -> None:
    """Plays the scenario and adds what came out of it.

    Raises:
        RehearsalError: the script failed, or did not come where it had to in time.
    """
    stage.open(STEPS)
    stage.submit()
    _trained(stage, 0.0, stage.least)
    verdict.add(f"{counted(stage.least, 'worker')} trained {STEPS} steps")

    at = time.time()
    stage.resize(stage.most)
    _trained(stage, at, stage.most)
    _left(stage, verdict, at, f"the resize to {counted(stage.most, 'worker')}", grace_s)

    at = time.time()
    killed = stage.kill(stage.pods()[-1])
    _trained(stage, at, 1)
    verdict.add("a worker was killed, and training began again", right=bool(killed))
    _taken_up(stage, verdict, at, "the kill")

    at = time.time()
    stage.stop()
    stage.submit()
    _trained(stage, at, 1)
    _left(stage, verdict, at, "the stop of the whole Job", grace_s)


def _processes(folder: Path) -> list[_Process]:
    found = []
    for path in sorted((folder / "processes").glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines:
            found.append(_Process([json.loads(line) for line in lines]))
    return found


def _trained(stage: Stage, since: float, workers: int) -> None:
    """Waits until that many processes have begun since then and done their steps; or have ended, for want of more."""

    def seen() -> bool:
        young = [each for each in _processes(stage.folder) if each.began > since]
        ready = [
            each for each in young if each.world >= workers and (each.steps >= STEPS or each.at("end") is not None)
        ]
        return bool(ready) and len(young) >= workers

    what = f"{STEPS} steps by {workers} workers" if workers > 1 else f"{STEPS} steps after it began again"
    stage.until(seen, f"{what} (counted are steps of PyTorch's optimizers, or where there are none, its checkpoints)")


def _left(stage: Stage, verdict: Verdict, at: float, what: str, grace_s: float) -> None:
    """How the processes took SIGTERM, and whether the next ones went on from what they left."""
    told = [each for each in _processes(stage.folder) if each.began < at and (each.at("told") or 0.0) > at]
    if not told:
        verdict.add(f"{what}: no process was told to leave: it had ended before", right=False)
        return
    took = [(each.at("end") or each.events[-1]["time"]) - (each.at("told") or at) for each in told]
    young = [each.began for each in _processes(stage.folder) if each.began > at]
    gap = min(young) - min(each.at("told") or at for each in told)
    late = gap > grace_s and max(took) > grace_s - 1.0
    verdict.add(
        f"{what}: told to leave by SIGTERM, "
        + (
            f"the script did not within {grace_s:.0f} s and was killed"
            if late
            else f"the script left after {max(took):.1f} s"
        ),
        right=not late,
    )
    _taken_up(stage, verdict, at, what)


def _taken_up(stage: Stage, verdict: Verdict, at: float, what: str) -> None:
    """Whether the processes that began since then read what those before had written, and how old it was."""
    processes = _processes(stage.folder)
    older, younger = [each for each in processes if each.began < at], [each for each in processes if each.began > at]
    read = {path for each in younger for path in each.files("read")}
    lost = _steps_lost(older, stage.most, read)
    if lost is None:
        verdict.add(
            f"{what}: nothing that was written before was read again: it began from scratch"
            " (seen are files that Python and torch.save write)",
            right=False,
        )
        return
    names = sorted({Path(path).name for each in older for path in each.files("wrote") if path in read})
    told = "where it had left" if not lost else f"{lost} steps before where it had left"
    # A kill may cost what came after the last checkpoint; who is told to leave saves first.
    verdict.add(
        f"{what}: it went on from {', '.join(names[:3])}, {told}", right=not lost or "kill" in what, steps_lost=lost
    )


def _steps_lost(older: Sequence[_Process], latest: int, read: set[str]) -> int | None:
    """How many steps were done after what was read had been written; None where nothing was read.

    Of the `latest` processes, which were the last generation; where none of them has written, all of their steps.
    """
    writers = [each for each in older if any(path in read for path in each.files("wrote"))]
    if not writers:
        return None
    last = older[-latest:]
    lost = [
        each.steps - max(written["steps"] for path, written in each.files("wrote").items() if path in read)
        for each in last
        if each in writers
    ]
    return min(lost) if lost else max(each.steps for each in last)
