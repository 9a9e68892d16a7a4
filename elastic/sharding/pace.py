# SPDX-License-Identifier: Apache-2.0
"""How fast each worker is, and the claims on a batch that follow: what `data.sharding: proportional` shares out by."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.sharding.shares import apportion

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Pace"]

_KEPT = 5
"""Measurements a worker: their middle outlasts a first step that warms up, and a hiccup."""

_LEAST = 3
"""Measurements of a worker before its speed counts; the middle one of the others stands in till then."""

_EVERY = 10
"""Steps between two decisions while nobody comes or goes."""

_MOST = 4.0
"""No speed counts as more than so many times the middle one, or as less than that part of it: a worker that hangs for
a moment keeps a share by which to show that it has recovered."""

_GAIN = 0.05
"""Part of a step's time that other shares must save: what was fetched ahead for the present ones has a price."""


class Pace:
    """The speeds of the workers of a training, and what each may claim of the next batches.

    All of it follows from what all workers have seen in committed steps, so all decide the same; part of the state that
    newcomers take over, of a size that grows with the number of workers only. Workers are told apart by number. Who has
    which rank is known from the first committed step of a rendezvous on, which is shared out equally.
    """

    def __init__(self) -> None:
        self._measured: dict[int, deque[float]] = {}
        self._rendezvous = ""
        self._claims: list[float] = []
        self._since = 0

    def shares(self, count: int, *, rendezvous: str, world: int) -> list[int]:
        """How many of a batch's `count` samples each rank of these workers feeds."""
        known = rendezvous == self._rendezvous and len(self._claims) == world
        return apportion(count, self._claims if known else [1.0] * world)

    def committed(self, rendezvous: str, rows: Sequence[tuple[int, int, float]]) -> None:
        """These workers have committed a step.

        Args:
            rendezvous: The name of their process group.
            rows: By rank, the worker's number, the samples it fed, and the seconds that took it by itself.
        """
        workers = [worker for worker, _, _ in rows]
        for worker, count, seconds in rows:
            if count and seconds > 0:
                self._measured.setdefault(worker, deque(maxlen=_KEPT)).append(count / seconds)
        if rendezvous != self._rendezvous:
            self._rendezvous, self._claims, self._since = rendezvous, [1.0] * len(rows), 0
            self._measured = {worker: speeds for worker, speeds in self._measured.items() if worker in workers}
            self._decide(workers, sum(count for _, count, _ in rows))
            return
        self._since += 1
        if self._since % _EVERY == 0:
            self._decide(workers, sum(count for _, count, _ in rows))

    def _decide(self, workers: Sequence[int], count: int) -> None:
        known = {worker: median(speeds) for worker, speeds in self._measured.items() if len(speeds) >= _LEAST}
        if not known or len(set(workers)) < len(workers):
            return
        middle = median(known.values())
        speeds = [min(max(known.get(worker, middle), middle / _MOST), middle * _MOST) for worker in workers]
        before, after = (_slowest(apportion(count, claims), speeds) for claims in (self._claims, speeds))
        if after < before * (1 - _GAIN):
            self._claims = speeds

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "measured": [[worker, list(speeds)] for worker, speeds in self._measured.items()],
            "rendezvous": self._rendezvous,
            "claims": list(self._claims),
            "since": self._since,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over another worker's."""
        self._measured = {worker: deque(speeds, maxlen=_KEPT) for worker, speeds in state["measured"]}
        self._rendezvous, self._claims = state["rendezvous"], list(state["claims"])
        self._since = state["since"]


def _slowest(shares: Sequence[int], speeds: Sequence[float]) -> float:
    return max(share / speed for share, speed in zip(shares, speeds, strict=True))
