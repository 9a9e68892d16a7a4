# SPDX-License-Identifier: Apache-2.0
"""What the ledgers of a run say, while it runs and after it."""

from __future__ import annotations

import json
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.ledger import Audit, audit

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Ledgers", "differing", "pause"]


class Ledgers:
    """The ledgers of a job folder as they are now."""

    def __init__(self, job_dir: Path) -> None:
        self._files = {path.name: _lines(path) for path in sorted((job_dir / "ledger").glob("*.jsonl"))}
        entries = [entry for lines in self._files.values() for entry in map(_entry, lines) if entry]
        self.starts = sorted((each for each in entries if each["kind"] == "start"), key=lambda each: each["time"])
        self.commits = sorted((each for each in entries if each["kind"] == "commit"), key=lambda each: each["time"])

    @property
    def steps(self) -> int:
        """How many steps are committed."""
        return max((each["step"] + 1 for each in self.commits), default=0)

    @property
    def total(self) -> int:
        """How many steps the training has."""
        if not self.starts:
            return 0
        start = self.starts[0]
        return int(-(-start["size"] // start["batch"]) * start["epochs"])

    def workers(self, since: float = 0.0) -> int:
        """The largest group that has committed a step since then."""
        return max((each["world"] for each in self.commits if each["time"] >= since), default=0)

    def audit(self) -> Audit | None:
        """What led to the last committed step; None where there is none."""
        if not self.commits:
            return None
        last = max(self.commits, key=lambda each: (each["step"], each["time"]))
        start = self.starts[0]
        about = {key: start[key] for key in ("size", "batch", "epochs", "seed")}
        return audit(self._files, {**about, "lineage": last["lineage"], "step": last["step"] + 1})


def differing(ours: list[float], fixed: list[float], tolerance: float) -> tuple[int | None, float]:
    """The first step whose loss differs by more than a tolerance, and the largest difference.

    Differences are relative to the loss, or to the mean of all where a loss is smaller.
    """
    usual = sum(abs(each) for each in fixed) / max(1, len(fixed)) or 1.0
    parts = [abs(one - other) / max(abs(other), usual) for one, other in zip(ours, fixed, strict=False)]
    first = next((step for step, part in enumerate(parts) if not part <= tolerance), None)
    return first, max(parts, default=0.0)


def pause(commits: list[dict[str, Any]], before: int, opened: float) -> float | None:
    """How long training stood still at a change of its workers, in seconds, beyond a usual step.

    Args:
        commits: all, by time.
        before: how many workers there were.
        opened: when the gate was opened; what came before was waiting for it.
    """
    times: dict[int, tuple[float, int]] = {}
    for each in commits:
        times.setdefault(each["step"], (each["time"], each["world"]))
    steps = [times[step] for step in sorted(times)]
    gaps = [
        (later[0] - max(opened, earlier[0]), earlier[1], later[1])
        for earlier, later in pairwise(steps)
        if later[0] > opened
    ]
    usual = median([gap for gap, one, other in gaps if one == other] or [0.0])
    changes = [gap for gap, one, other in gaps if one == before != other]
    return max(0.0, changes[0] - usual) if changes else None


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _entry(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:  # torn: its process was killed, or writes it now
        return None
    return value if isinstance(value, dict) else None
