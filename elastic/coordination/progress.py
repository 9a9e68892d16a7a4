"""Where workers send their progress to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kfp_volcano.elastic.coordination.server import Server
from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import MembershipChange, Progress, parse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHANGES_KEPT", "ProgressReceiver"]

CHANGES_KEPT = 20


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
        self._changes: dict[tuple[int, int, int], MembershipChange] = {}
        self._lock = threading.Lock()
        self._server = Server(host, port, "/progress", self._receive)

    def stop(self) -> None:
        """Close the port."""
        self._server.stop()

    def _receive(self, text: str) -> None:
        progress = parse(Progress, text)
        with self._lock:
            # A first worker that began anew knows only what it saw: the changes before stay known here.
            for change in progress.changes:
                self._changes[(change.step, change.from_workers, change.to_workers)] = change
            kept = sorted(self._changes.values(), key=lambda change: change.at)[-CHANGES_KEPT:]
            self._changes = {(change.step, change.from_workers, change.to_workers): change for change in kept}
            values = {name: getattr(progress, name) for name in Progress.__dataclass_fields__}
            self._on_progress(Progress(**{**values, "changes": tuple(kept)}))
