# SPDX-License-Identifier: Apache-2.0
"""What this worker was asked to do, by signals or calls; the next step tells the others."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kfp_volcano.elastic.runtime.message import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LEFT", "Wishes"]

LEFT = 128 + signal.SIGTERM
"""Exit code of a worker that left an unfinished training: 143, as of any process that a SIGTERM ended.

Not 0: Volcano counts a pod that succeeded towards its task's completion, and a drained node would "complete" the gang
of an unfinished Job. A pod being deleted is not restarted whatever its code, and one that was only signalled should be.
"""


class Wishes:
    """SIGTERM: finish the step and leave. SIGUSR1: write a checkpoint."""

    def __init__(self) -> None:
        self.leave = False
        self.save = False

    def flags(self, *, renew: bool, save: bool) -> Flag:
        """What the others are told; a lease that has run out and a checkpoint that is overdue come to it."""
        flags = Flag.LEAVING if self.leave else Flag(0)
        flags |= Flag.RENEW if renew else Flag(0)
        return flags | (Flag.SAVE if save or self.save else Flag(0))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes the signals within the block. Outside the main thread, which alone may, nothing is taken."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: setattr(self, "leave", True)),
            signal.SIGUSR1: signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "save", True)),
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
