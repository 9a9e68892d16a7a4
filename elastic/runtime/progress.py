# SPDX-License-Identifier: Apache-2.0
"""What training tells of itself while it runs: its history, and the thread that sends it to the coordinator."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections import deque
from dataclasses import asdict
from statistics import median
from typing import Any

from kfp_volcano.elastic.coordination.history import CHANGES_KEPT
from kfp_volcano.elastic.runtime.speeds import Speeds
from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import Measured, MembershipChange, Progress, dump

__all__ = ["History", "Reporter"]

_STEPS_KEPT = 50
_EVERY_S = 0.5


class History:
    """When steps committed, and how the number of workers changed.

    Part of the shared state, so that every worker, newcomers included, can tell it.
    """

    def __init__(self) -> None:
        self._commits: deque[tuple[float, int]] = deque(maxlen=_STEPS_KEPT)
        self._gaps: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._changes: deque[MembershipChange] = deque(maxlen=CHANGES_KEPT)
        self._speeds = Speeds()
        self._workers = 0
        self._discarded = 0

    def commit(
        self,
        *,
        step: int,
        samples: int,
        workers: int,
        at: float,
        batch: int | None = None,
        nodes: int = 1,
        summed_s: float = 0.0,
    ) -> None:
        """A step was committed.

        Args:
            step: Counted over all of training, this one included.
            samples: Likewise.
            workers: That trained.
            at: Unix seconds.
            batch: Samples in it; None where it was cut short, and its speed tells nothing.
            nodes: That the workers were on.
            summed_s: How long even the slowest worker spent on summing gradients.
        """
        if self._commits:
            gap = at - self._commits[-1][0]
            if workers == self._workers and not self._discarded:
                self._gaps.append(gap)
                if batch is not None:
                    self._speeds.add(workers=workers, nodes=nodes, batch=batch, step_s=gap, summed_s=summed_s)
            elif workers != self._workers:
                self._changes.append(
                    MembershipChange(
                        step=step,
                        from_workers=self._workers,
                        to_workers=workers,
                        at=at,
                        pause_s=max(0.0, gap - (median(self._gaps) if self._gaps else 0.0)),
                        steps_lost=self._discarded,
                    )
                )
        self._commits.append((at, samples))
        self._workers, self._discarded = workers, 0

    def discard(self) -> None:
        """A step was computed and did not commit."""
        self._discarded += 1

    @property
    def workers(self) -> int:
        """That committed the last step."""
        return self._workers

    def turn_back(self) -> None:
        """Training went back to an earlier state: what was committed since says nothing of its pace from here on."""
        self._commits.clear()

    @property
    def throughput(self) -> float:
        """Samples a second over the last steps."""
        if len(self._commits) < 2:  # noqa: PLR2004 - two ends of a span
            return 0.0
        (first, before), (last, after) = self._commits[0], self._commits[-1]
        return (after - before) / (last - first) if last > first else 0.0

    @property
    def changes(self) -> tuple[MembershipChange, ...]:
        """The last changes of membership, newest last."""
        return tuple(self._changes)

    @property
    def measured(self) -> tuple[Measured, ...]:
        """How fast it was with each number of workers, the newest last."""
        return self._speeds.told

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "commits": [list(entry) for entry in self._commits],
            "gaps": list(self._gaps),
            "changes": [asdict(change) for change in self._changes],
            "workers": self._workers,
            "told_at": time.time(),
            "speeds": self._speeds.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over another worker's history. What this one discarded since its last commit stays counted."""
        self._commits = deque(((at, samples) for at, samples in state["commits"]), maxlen=_STEPS_KEPT)
        self._gaps = deque(state["gaps"], maxlen=_STEPS_KEPT)
        self._changes = deque((MembershipChange(**change) for change in state["changes"]), maxlen=CHANGES_KEPT)
        self._workers = state["workers"]
        self._speeds = Speeds()
        if "speeds" in state:  # not in checkpoints of versions before 0.2
            self._speeds.load_state_dict(state["speeds"])

    def shift(self, seconds: float) -> None:
        """Moves its times to another clock, which is so much ahead."""
        self._commits = deque(((at + seconds, samples) for at, samples in self._commits), maxlen=_STEPS_KEPT)


class Reporter:
    """Sends progress to the coordinator from its own thread; what is out of date when its turn comes is dropped."""

    def __init__(self, coordinator: str) -> None:
        host = f"[{coordinator}]" if ":" in coordinator else coordinator
        self._url = f"http://{host}:{names.PROGRESS_PORT}/progress"
        self._latest: Progress | None = None
        self._wake = threading.Condition()
        self._ended = False
        self._due_at = 0.0
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def due(self) -> bool:
        """Whether a report is worth composing now."""
        return time.monotonic() >= self._due_at

    def offer(self, progress: Progress) -> None:
        """Hands over the newest progress; never waits."""
        self._due_at = time.monotonic() + _EVERY_S
        with self._wake:
            self._latest = progress
            self._wake.notify()

    def close(self) -> None:
        """Sends what is left, for a second at most."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._latest is not None or self._ended)
                progress, self._latest = self._latest, None
            if progress is None:
                return
            request = urllib.request.Request(  # noqa: S310 - the coordinator's address, from the manifest
                self._url, dump(progress).encode(), {"Content-Type": "application/json"}, method="POST"
            )
            try:
                urllib.request.urlopen(request, timeout=5.0).close()  # noqa: S310 - as above
            except (OSError, urllib.error.URLError):
                continue  # the coordinator is away: the next report says more than this one did
