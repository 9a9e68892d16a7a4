# SPDX-License-Identifier: Apache-2.0
"""What a worker looks out for while it trains: that it hangs, holds the others up, or has no memory left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kfp_volcano.elastic.runtime.memory import advise_on_memory
from kfp_volcano.elastic.runtime.stragglers import Stragglers
from kfp_volcano.elastic.runtime.watchdog import Watchdog
from kfp_volcano.schemas.events import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfp_volcano.elastic.runtime.events import Events
    from kfp_volcano.elastic.runtime.group import Group
    from kfp_volcano.elastic.runtime.message import Row
    from kfp_volcano.elastic.runtime.share import Attempt
    from kfp_volcano.elastic.runtime.surroundings import Surroundings
    from kfp_volcano.elastic.runtime.wishes import Wishes

__all__ = ["Lookout"]


class Lookout:
    """As `faults.hang` and `faults.straggler` say.

    Args:
        here: the process's place in its Job.
        wishes: take the wish to leave.
        events: where it is told what was seen.
        group: gives the workers that train now.
    """

    def __init__(self, here: Surroundings, wishes: Wishes, events: Events, *, group: Callable[[], Group]) -> None:
        settings = here.settings
        self._pod, self._wishes, self._then = here.pod, wishes, settings.straggler_then
        self._events = events
        advise_on_memory(events)
        self._watchdog = Watchdog(settings.hang_s, waited_for=lambda: group().waited_for(), events=events)
        self._stragglers: Stragglers | None = None
        if settings.straggler_factor is not None:
            self._stragglers = Stragglers(factor=settings.straggler_factor, window=settings.straggler_window)
        self._group, self._committed_at, self._step_s = "", 0.0, 0.0

    def given(self) -> None:
        """The training code got a share."""
        self._watchdog.given()

    def answered(self) -> None:
        """It handed a loss back."""
        self._watchdog.answered()

    def committed(self, attempt: Attempt, rendezvous: str, rows: Sequence[Row]) -> None:
        """A step was committed by the workers of a rendezvous."""
        if self._stragglers is None:
            return
        now, step_s = time.perf_counter(), self._step_s
        same = rendezvous == self._group
        # A row's time for summing is the last step's: compared with how long that step took.
        self._step_s = now - self._committed_at if same else 0.0
        self._group, self._committed_at = rendezvous, now
        if not same or step_s == 0.0:
            return
        summed_s, counts = [row.summed_s for row in rows], [row.count for row in rows]
        found = self._stragglers.add(rendezvous, step_s, summed_s, counts)
        if found is not None and found[0] == attempt.rank:
            self._slow(found[1])

    def close(self) -> None:
        """Looks no more."""
        self._watchdog.close()

    def _slow(self, times: float) -> None:
        message = f"{self._pod} takes {times:.1f} times as long for a sample as the other workers"
        if self._then == "restart":
            message += ": it leaves, to be started again"
        self._events.add(Kind.STRAGGLER, message, pod=self._pod, times=times, then=self._then)
        if self._then == "restart":
            self._wishes.leave = True
