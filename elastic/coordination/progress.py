# SPDX-License-Identifier: Apache-2.0
"""Where workers send their progress to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kfp_volcano.elastic.coordination.history import with_former
from kfp_volcano.elastic.coordination.server import Server
from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import Progress, parse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ProgressReceiver"]


class ProgressReceiver:
    """Runs from its creation until `stop`.

    Args:
        host: address to listen on; `::` for all.
        on_progress: called with each report, from a thread of the server, one at a time.
        port: where workers send it to.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """

    def __init__(self, host: str, on_progress: Callable[[Progress], None], *, port: int = names.PROGRESS_PORT) -> None:
        self._on_progress = on_progress
        self._told: Progress | None = None
        self._lock = threading.Lock()
        self._server = Server(host, port, "/progress", self._receive)

    def stop(self) -> None:
        """Close the port."""
        self._server.stop()

    def _receive(self, text: str) -> None:
        progress = parse(Progress, text)
        with self._lock:
            # A first worker that began anew knows only what it saw: what was told before stays known here.
            self._told = with_former(progress, self._told)
            self._on_progress(self._told)
