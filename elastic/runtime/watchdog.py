# SPDX-License-Identifier: Apache-2.0
"""Finds a worker whose own work does not end while all others wait for it, says where it hangs, and ends it.

Only the time between a share's being given out and the loss's being handed back counts, for that is what the others
wait for: not an evaluation between two steps, a loader that is slow to give the next batch, or a wait for others.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from kfp_volcano.schemas.events import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.runtime.events import Events

__all__ = ["HUNG", "Watchdog"]

HUNG = 142
"""Exit code of a worker that hung: 128 + SIGALRM. Its pod starts it again."""

_LOOKS = 10
"""In the time that it waits."""


class Watchdog:
    """Watches from a thread of its own until `close`.

    Args:
        after_s: how long a share may take; None: for ever.
        waited_for: whether other workers wait for this one.
        events: where it tells.
        end: ends the process with an exit code, at once.
    """

    def __init__(
        self,
        after_s: float | None,
        *,
        waited_for: Callable[[], bool],
        events: Events,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._after_s, self._waited_for, self._events, self._end = after_s, waited_for, events, end
        self._given_at: float | None = None
        self._closed = threading.Event()
        if after_s is not None:
            threading.Thread(target=self._watch, args=(after_s / _LOOKS,), name="watchdog", daemon=True).start()

    def given(self) -> None:
        """The training code works on a share from now on."""
        self._given_at = time.monotonic()

    def answered(self) -> None:
        """It has handed its loss back."""
        self._given_at = None

    def close(self) -> None:
        """Watches no more."""
        self._closed.set()

    def look(self, now: float) -> bool:
        """Whether the worker hangs at a time of the monotonic clock."""
        given_at, after_s = self._given_at, self._after_s
        return given_at is not None and after_s is not None and now - given_at > after_s and self._waited_for()

    def _watch(self, every_s: float) -> None:
        while not self._closed.wait(every_s):
            if self.look(time.monotonic()):
                message = f"the training code has worked on one share for {self._after_s:g} s while the others waited"
                self._events.add(Kind.HANG, f"{message}; its stack is in this worker's log", after_s=self._after_s)
                sys.stderr.write(f"{message}. It is here (the worker ends, and is started again):\n")
                faulthandler.dump_traceback(all_threads=True)
                self._end(HUNG)
                return
