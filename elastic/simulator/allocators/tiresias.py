# SPDX-License-Identifier: Apache-2.0
"""Tiresias (NSDI'19) as it was published with Pollux: two queues by the service a job has had. Pure.

A job begins in the first queue and goes on in the second once it has run for `THRESHOLD_GPU_S` over all its GPUs; it
never comes back. GPUs go to the first queue's jobs in the order of their coming, then to the second's; one that does
not fit is passed over for those behind it, and one that ran is stopped then. A job has all the GPUs it asks for, or
none (OSDI'21 artifact, `simulator/tiresias.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kfp_volcano.elastic.simulator.allocators.filling import Free

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.simulator.allocators.allocator import Present, Spots
    from kfp_volcano.elastic.simulator.scenario import Job, Node

__all__ = ["THRESHOLD_GPU_S", "Tiresias"]

THRESHOLD_GPU_S = 16 * 3600


class Tiresias:
    """Discretised least attained service."""

    name: ClassVar[str] = "tiresias"
    adaptive: ClassVar[bool] = False

    def __init__(self) -> None:
        self._first: dict[str, None] = {}
        self._second: dict[str, None] = {}
        self._ran_s: dict[str, int] = {}
        self._running: set[str] = set()
        self._looked_at: float = 0.0

    def allocate(self, jobs: Sequence[Present], nodes: Sequence[Node], at: float) -> Mapping[str, Spots]:
        """What each job is to hold; see `Allocator`."""
        by_name = {each.job.name: each for each in jobs}
        self._update(by_name, at)
        queued = [by_name[name] for name in (*self._first, *self._second)]
        left = sum(node.gpus for node in nodes)
        self._running.clear()
        for each in queued:
            if _gpus(each.job) <= left:
                left -= _gpus(each.job)
                self._running.add(each.job.name)
        kept = {each.job.name: each.spots for each in queued if each.spots and each.job.name in self._running}
        free = Free(nodes, kept.values())
        for each in queued:
            if each.job.name in self._running and each.job.name not in kept:
                kept[each.job.name] = free.take(_gpus(each.job))
        return kept

    def _update(self, jobs: Mapping[str, Present], at: float) -> None:
        """Forget who has ended, take up who has come, and see who has had enough of the first queue."""
        self._first = {name: None for name in self._first if name in jobs}
        self._second = {name: None for name in self._second if name in jobs}
        self._running &= jobs.keys()
        for name in jobs:
            if name not in self._first and name not in self._second:
                self._first[name] = None
                self._ran_s[name] = 0
        for name, each in jobs.items():
            if name in self._running:
                self._ran_s[name] += int(at - self._looked_at)
                if name in self._first and self._ran_s[name] * _gpus(each.job) >= THRESHOLD_GPU_S:
                    del self._first[name]
                    self._second[name] = None
        self._looked_at = at


def _gpus(job: Job) -> int:
    return job.workers * job.gpus_per_worker
