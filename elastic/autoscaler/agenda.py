# SPDX-License-Identifier: Apache-2.0
"""What is due when, among many; and who of those that want room goes next."""

from __future__ import annotations

import heapq

__all__ = ["Agenda", "Pace"]


class Agenda:
    """One time for each name; asks for the earliest cost little."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def put(self, name: str, at: float) -> None:
        """It is due then, and not when it was before."""
        if self._times.get(name) != at:
            self._times[name] = at
            heapq.heappush(self._heap, (at, name))

    def hasten(self, name: str, at: float) -> None:
        """It is due then at the latest."""
        if at < self._times.get(name, at + 1):
            self.put(name, at)

    def drop(self, name: str) -> None:
        """It is not due any more."""
        self._times.pop(name, None)

    def next_at(self) -> float | None:
        """When the next is due; None where nothing is."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> str | None:
        """One that is due, the earliest first; it stays until it is put anew."""
        at = self.next_at()
        return self._heap[0][1] if at is not None and at <= now else None


class Pace:
    """Times for things that would all like to happen now: some at once, the others at a steady rate.

    Args:
        per_s: The rate.
        burst: How many may happen at once after a quiet time.
    """

    def __init__(self, *, per_s: float, burst: int) -> None:
        self._step_s = 1 / per_s
        self._ahead_s = (burst - 1) / per_s
        self._taken_until = 0.0

    def next(self, now: float) -> float:
        """When the next one may happen (generic cell rate algorithm)."""
        begins = max(now, self._taken_until - self._ahead_s)
        self._taken_until = max(now, self._taken_until) + self._step_s
        return begins
