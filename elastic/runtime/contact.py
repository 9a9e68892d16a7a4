# SPDX-License-Identifier: Apache-2.0
"""A worker's contact with the lighthouse: found, asked, lost, and found again, over one lifeline after the other."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from kfp_volcano.elastic.runtime.lifeline import Lifeline
from kfp_volcano.schemas import names
from kfp_volcano.schemas.events import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfp_volcano.elastic.runtime.events import Events
    from kfp_volcano.elastic.runtime.lifeline import Standing

__all__ = ["Contact"]

_RETRY_S = 0.1
_CONNECT_S = 5.0
_COMPLAIN_S = 10.0

_log = logging.getLogger(__name__)


class Contact:
    """There is none at first, nor after it was lost, until `seek` has found the lighthouse.

    Args:
        coordinator: host of the lighthouse.
        gone: whether this worker was told to leave: ends a search.
        tells: whether this process tells the Job's log of operations, of all that find the same.
        events: where it tells that the coordinator is lost, and that it is back.
    """

    def __init__(
        self, coordinator: str, *, gone: Callable[[], bool], tells: Callable[[], bool], events: Events
    ) -> None:
        self._coordinator = coordinator
        self._gone, self._tells, self._events = gone, tells, events
        self._line: Lifeline | None = None
        self._lost_at: float | None = None

    @property
    def whole(self) -> bool:
        """Whether the lighthouse that was found still runs, as far as this side has been told."""
        return self._line is not None and self._line.whole()

    @property
    def born(self) -> int:
        """When the contact was made, Unix seconds by the lighthouse's clock; 0 where there is none."""
        return self._line.born if self._line else 0

    def seek(self, *, patient: bool) -> bool:
        """Find the lighthouse; one who is patient looks for it until told to leave."""
        host, port = self._coordinator, names.LIGHTHOUSE_PORT
        told = time.monotonic()
        while True:
            try:
                self._line = Lifeline(host, port, timeout_s=_CONNECT_S)
                break
            except OSError as error:
                if not patient or self._gone():
                    return False
                if time.monotonic() - told > _COMPLAIN_S:
                    told = time.monotonic()
                    _log.warning("waiting for the lighthouse at %s:%d: %s", host, port, error)
                time.sleep(_RETRY_S)
        return True

    def ask(self) -> Standing | None:
        """How things stand; None where there is no contact, or no answer within a second."""
        return None if self._line is None else self._line.ask()

    def ask_or_lose(self) -> Standing | None:
        """The same; without an answer contact is lost, and has to be sought anew."""
        standing = self.ask()
        if standing is None and self._line is not None:
            self._lose(self._line)
        return standing

    def close(self) -> None:
        """Let go; tells where the lighthouse had gone first."""
        if self._line is None:
            return
        if self._line.whole():
            self._line.close()
            self._line = None
        else:
            self._lose(self._line)

    def restored(self) -> None:
        """The workers have found each other again: tell that the coordinator is back, where it was lost."""
        if self._lost_at is not None:
            seconds, self._lost_at = time.monotonic() - self._lost_at, None
            words = f"the coordinator is there again, after {seconds:.1f} s"
            self._events.add(Kind.COORDINATOR_BACK, words, seconds=seconds)

    def _lose(self, line: Lifeline) -> None:
        if self._lost_at is None and self._tells():
            self._lost_at = time.monotonic()
            words = f"the coordinator {self._coordinator} is gone, or cannot be reached"
            self._events.add(Kind.COORDINATOR_LOST, words)
        line.close()
        self._line = None
