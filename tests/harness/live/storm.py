# SPDX-License-Identifier: Apache-2.0
"""Random joins, leaves, kills, hangs and cuts of a Job's workers, one after the other, and what each cost."""

from __future__ import annotations

import signal
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import TYPE_CHECKING, Literal

from live.network import Namespaces

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from kfp_volcano.elastic.ledger import Audit
    from live.job import Job

__all__ = ["Change", "Kind", "Storm", "longest_pause", "steps_lost_to_plans"]

Kind = Literal["join", "leave", "kill", "hang", "cut", "coordinator"]
_SETTLE_STEPS = 5
_BEFORE = 50
_FAULT_S = 1.0, 8.0


@dataclass(frozen=True, slots=True)
class Change:
    """Something happened to the workers."""

    kind: Kind
    workers: int
    """That are there afterwards."""
    began: float
    """Unix seconds."""
    ended: float
    """When so many had committed a few steps together."""

    @property
    def seconds(self) -> float:
        """It took."""
        return self.ended - self.began

    @property
    def planned(self) -> bool:
        """Whether somebody decided it: no step may be lost to it."""
        return self.kind in {"join", "leave"}


class Storm:
    """Changes the number of a Job's workers between two limits.

    Args:
        job: whose coordinator runs.
        random: decides what happens, and to whom.
        least: workers that stay.
        most: workers there can be.
        faults: what happens beside joins, leaves and kills.
    """

    def __init__(self, job: Job, random: Random, *, least: int, most: int, faults: Sequence[Kind] = ()) -> None:
        self.job, self._random, self._faults = job, random, tuple(faults)
        self._least, self._most = least, most
        self.pods: list[str] = []

    def begin(self, workers: int) -> None:
        """Starts the first ones, and waits for them."""
        for _ in range(workers):
            self._add()
        self.job.wait_for_steps(_SETTLE_STEPS, world=workers)

    def change(self) -> Change:
        """Something happens; returns when training goes on with the number of workers that follows from it."""
        kinds: list[Kind] = list(self._faults)
        if len(self.pods) < self._most:
            kinds.append("join")
        if len(self.pods) > self._least:
            kinds += ["leave", "kill"]
        kind = self._random.choice(kinds)
        began = time.time()
        match kind:
            case "join":
                self._add()
            case "leave" | "kill":
                pod = self.pods.pop(self._random.randrange(len(self.pods)))
                self.job.signal(pod, signal.SIGTERM if kind == "leave" else signal.SIGKILL)
            case "hang":
                self._hang(self._random.choice(self.pods), self._random.uniform(*_FAULT_S))
            case "cut":
                self._cut(self._random.sample(self.pods, self._random.randint(1, len(self.pods))))
            case "coordinator":
                self.job.kill("coordinator")
                time.sleep(self._random.uniform(0.0, 3.0))
                self.job.start_coordinator()
        self.job.wait_for_steps(_SETTLE_STEPS, world=len(self.pods))
        return Change(kind, len(self.pods), began, time.time())

    def _hang(self, pod: str, seconds: float) -> None:
        self.job.signal(pod, signal.SIGSTOP)
        time.sleep(seconds)
        self.job.signal(pod, signal.SIGCONT)

    def _cut(self, away: Sequence[str]) -> None:
        """These are cut off from all others and the coordinator for a while."""
        network = self.job.network
        if not isinstance(network, Namespaces):
            raise TypeError("only namespaces can be cut off from each other")
        there = {self.job.index(pod) for pod in away}
        network.cut(there, ({self.job.index(pod) for pod in self.pods} | {1}) - there)
        time.sleep(self._random.uniform(*_FAULT_S))
        network.heal()

    def _add(self) -> None:
        pod = self._random.choice([name for index in range(self._most) if (name := f"w-{index}") not in self.pods])
        if self._alive(pod):  # it no longer trains, but has not ended yet
            self.job.exit_code(pod)
        self.job.start(pod)
        self.pods.append(pod)

    def _alive(self, pod: str) -> bool:
        process = self.job.processes.get(pod)
        return process is not None and process.is_alive()


def longest_pause(change: Change, commits: Sequence[float]) -> float:
    """Longest time in seconds between two committed steps around a change, less the median step before it.

    `commits` are the times of all steps that count, ascending.
    """
    first, last = max(1, bisect_left(commits, change.began)), bisect_right(commits, change.ended)
    before = [commits[index] - commits[index - 1] for index in range(max(1, first - _BEFORE), first)]
    around = [commits[index] - commits[index - 1] for index in range(first, last)]
    return max(0.0, max(around) - median(before)) if around and before else 0.0


def steps_lost_to_plans(changes: Sequence[Change], audit: Audit) -> int:
    """How many steps were discarded during planned changes.

    The step that was under way when the next change began is that one's, where it is a kill.
    """
    commits = [commit.time for commit in audit.commits]
    lost = 0
    for change, after in zip_longest(changes, changes[1:]):
        until = change.ended
        if after is not None and not after.planned:
            until = min(until, commits[bisect_left(commits, after.began) - 1])
        lost += audit.steps_lost(change.began, until) if change.planned else 0
    return lost
