# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints beside training."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.runtime.checkpoints.snapshot import Buffers, Snapshot
from kfp_volcano.elastic.runtime.events import Events, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kfp_volcano.elastic.runtime.checkpoints.collection import Checkpoints

__all__ = ["Saver"]

_RETRY_S = 10.0
"""After the first write that failed; twice as long after each further one."""
_NICENESS = 10

_log = logging.getLogger(__name__)


class Saver:
    """One checkpoint at a time, from the state at rest between two steps to the disk.

    `begin` notes the state; `copy` starts copying it, beside the computation of gradients; `copied` waits for that,
    before an update. What a write raises costs that checkpoint alone: training is worth more.

    Args:
        checkpoints: where they go.
        before: called before a checkpoint counts; raises OSError where it must not.
        patience_s: the longest wait between two tries.
        events: where it is told.
    """

    def __init__(
        self, checkpoints: Checkpoints, *, before: Callable[[], None], patience_s: float, events: Events
    ) -> None:
        self._checkpoints = checkpoints
        self._before = before
        self._patience_s = patience_s
        self._events = events
        self._free = [Buffers(), Buffers()]
        self._noted: Snapshot | None = None
        self._copying: Snapshot | None = None
        self._about: Mapping[str, Any] = {}
        self._writing: threading.Event | None = None
        self._began_at = 0.0
        self._stood_s = 0.0
        self._failures = 0
        self._retry_at: float | None = None

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is on its way."""
        return self._noted is not None or (self._writing is not None and not self._writing.is_set())

    @property
    def overdue(self) -> bool:
        """Whether one that failed should be tried again, with the state of then."""
        return self._retry_at is not None and time.monotonic() >= self._retry_at

    def ready(self, *, wanted: bool = False) -> bool:
        """Whether `begin` would note a state now."""
        return self._noted is None and bool(self._free) and (wanted or not self.busy)

    def begin(self, state: Mapping[str, Any], about: Mapping[str, Any], *, wanted: bool = False) -> bool:
        """Notes the state at rest; its tensors are copied later, by `copy`.

        False where a checkpoint is on its way. A `wanted` one is then copied at once and written after that, unless
        another such waits.
        """
        if not self.ready(wanted=wanted):
            return False
        self._began_at = time.monotonic()
        self._retry_at = None
        busy = self.busy
        self._noted = Snapshot(state, self._free[-1])
        self._about = dict(about)
        self._stood_s = time.monotonic() - self._began_at
        if busy:
            self.copy()
            self.copied()
        return True

    def copy(self) -> None:
        """Starts copying what was noted, if anything was."""
        if self._noted is None:
            return
        began = time.monotonic()
        snapshot, self._noted = self._noted, None
        buffers, earlier, done = self._free.pop(), self._writing, threading.Event()
        self._copying, self._writing = snapshot, done
        snapshot.copy(partial(self._write, snapshot, self._about, buffers, earlier, done, self._began_at))
        self._stood_s += time.monotonic() - began

    def copied(self) -> None:
        """Waits until the state may change."""
        if self._copying is not None:
            began = time.monotonic()
            self._copying.copied()
            self._copying = None
            self._stood_s += time.monotonic() - began

    def finish(self) -> None:
        """Waits until what was noted is written."""
        self.copy()
        self.close()

    def close(self) -> None:
        """Forgets what was only noted, and waits for what is on its way."""
        self._noted = None
        self.copied()
        if self._writing is not None:
            self._writing.wait()

    def _write(
        self,
        snapshot: Snapshot,
        about: Mapping[str, Any],
        buffers: Buffers,
        earlier: threading.Event | None,
        done: threading.Event,
        began: float,
    ) -> None:
        with suppress(OSError):
            # Of this thread alone: serializing must not take processors from training.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        try:
            if earlier is not None:
                earlier.wait()
            manifest = self._checkpoints.write(snapshot.state, about, before=self._before)
            self._failures = 0
            size = sum(file.size or 0 for file in manifest.files.values())
            took, stood = time.monotonic() - began, 1000 * self._stood_s
            said = f"checkpoint {manifest.name} of {size / 1e6:.1f} MB written in {took:.1f} s"
            said += f"; training stood {stood:.1f} ms for it"
            facts = {"bytes": size, "seconds": took, "stood_ms": stood}
            self._events.add(Kind.CHECKPOINT_SAVED, said, checkpoint=manifest.name, **facts)
        except OSError as error:
            pause = min(self._patience_s, _RETRY_S * 2**self._failures)
            self._failures += 1
            self._retry_at = time.monotonic() + pause
            said = f"a checkpoint could not be written to {self._checkpoints.store.where}: {error}"
            said += f"; those before are whole, the next try is in {pause:.0f} s"
            _log.error("%s", said)
            self._events.add(Kind.CHECKPOINT_FAILED, said, retry_s=pause)
        finally:
            self._free.append(buffers)
            done.set()
