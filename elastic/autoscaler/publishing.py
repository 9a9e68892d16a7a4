# SPDX-License-Identifier: Apache-2.0
"""From the progress that workers send to the Job's annotation: seldom, for every write wakes all who watch the Job."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from kfp_volcano.elastic.coordination.history import with_former
from kfp_volcano.errors import ClusterError, NotFoundError
from kfp_volcano.schemas.names import PROGRESS
from kfp_volcano.schemas.records import Progress, dump, parse
from kfp_volcano.volcano.cluster.annotations import update_annotation

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.volcano.cluster.base import Cluster

__all__ = ["EVERY_S", "ProgressPublisher", "with_history"]

EVERY_S = 5.0
"""Least time between two writes, seconds: the contract of the annotation."""
RETRY_S = 1.0
"""Before the next try of a write that came to nothing, seconds."""

_log = logging.getLogger(__name__)


class ProgressPublisher:
    """Writes the newest progress onto a Job from a thread of its own, until closed.

    Args:
        connect: Gives the cluster; called in the thread, again after each failure.
        namespace: The Job's namespace.
        name: The Job's name.
        every_s: Least time between two writes.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        connect: Callable[[], Cluster],
        namespace: str,
        name: str,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._namespace = namespace
        self._name = name
        self._every_s = every_s
        self._clock = clock
        self._newest: Progress | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="progress publisher", daemon=True)
        self._thread.start()

    def offer(self, progress: Progress) -> None:
        """Take over the newest progress; what was not written yet is left out. Never waits."""
        with self._changed:
            self._newest = progress
            self._changed.notify()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is left at once, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        due_at = self._clock()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._newest is not None)
                while not self._closed and self._clock() < due_at:
                    self._changed.wait(due_at - self._clock())
                progress, self._newest = self._newest, None
                closed = self._closed
            done = progress is None or self._write(progress)
            if closed:
                return
            due_at = self._clock() + (self._every_s if done else min(RETRY_S, self._every_s))
            if not done:
                with self._changed:
                    self._newest = self._newest or progress

    def _write(self, progress: Progress) -> bool:
        """False where it is to be tried again."""
        try:
            update_annotation(
                self._connect(),
                "Job",
                self._name,
                self._namespace,
                PROGRESS,
                lambda text: dump(with_history(progress, text)),
            )
        except NotFoundError:
            _log.info("%s/%s is gone: its progress is not kept", self._namespace, self._name)
        except ClusterError as error:
            self._tell(str(error))
            return False
        self._tell("")
        return True

    def _tell(self, trouble: str) -> None:
        """Say what keeps progress from being written once, however often it is tried; and that it is over."""
        if trouble and trouble != self._trouble:
            _log.warning("progress is not written yet: %s", trouble)
        elif self._trouble and not trouble:
            _log.info("progress is written")
        self._trouble = trouble


def with_history(progress: Progress, before: str | None) -> Progress:
    """The progress with what the annotation's former text tells of earlier times too; see `with_former`."""
    try:
        former = parse(Progress, before) if before else None
    except (ValueError, TypeError, AttributeError):
        former = None
    return with_former(progress, former)
