"""What the coordinator pod offers the workers: torchft's lighthouse, and an address for progress.

It keeps no state that training depends on: killed and started again, the workers find its lighthouse and go on.
"""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING

from torchft.coordination import LighthouseServer

from kfp_volcano.elastic.runtime.progress import CHANGES_KEPT
from kfp_volcano.elastic.runtime.replica_group import HEARTBEAT_TIMEOUT_S
from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import MembershipChange, Progress, parse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Coordinator"]

_JOIN_TIMEOUT_S = 60.0
"""How long a quorum waits for a worker whose heart beats but that does not come: one that hangs, or is very slow."""

_QUORUM_TICK_S = 0.02
_LARGEST_REPORT = 1 << 20


class Coordinator:
    """Runs from its creation until `stop`.

    Args:
        host: address to listen on; `::` for all.
        on_progress: called with each report, from a thread of the server, one at a time.
        lighthouse_port: where workers look for the lighthouse.
        progress_port: where they send progress to.

    Raises:
        OSError: a port is taken, or the address is not this machine's.
    """

    def __init__(
        self,
        host: str,
        on_progress: Callable[[Progress], None],
        *,
        lighthouse_port: int = names.LIGHTHOUSE_PORT,
        progress_port: int = names.PROGRESS_PORT,
    ) -> None:
        self._on_progress = on_progress
        self._changes: dict[tuple[int, int, int], MembershipChange] = {}
        self._lock = threading.Lock()
        self._server = _Server(host, progress_port, self._receive)
        try:
            self._lighthouse = LighthouseServer(
                bind=f"[{host}]:{lighthouse_port}" if ":" in host else f"{host}:{lighthouse_port}",
                min_replicas=1,
                join_timeout_ms=round(_JOIN_TIMEOUT_S * 1000),
                quorum_tick_ms=round(_QUORUM_TICK_S * 1000),
                heartbeat_timeout_ms=round(HEARTBEAT_TIMEOUT_S * 1000),
            )
        except RuntimeError as error:
            self._server.server_close()
            raise OSError(f"the lighthouse cannot listen on {host}:{lighthouse_port}: {error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="progress receiver", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Closes both ports. Workers that are still connected to the lighthouse let go when this process ends."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._lighthouse.shutdown()

    def _receive(self, progress: Progress) -> None:
        with self._lock:
            # A first worker that began anew knows only what it saw: the changes before stay known here.
            for change in progress.changes:
                self._changes[(change.step, change.from_workers, change.to_workers)] = change
            kept = sorted(self._changes.values(), key=lambda change: change.at)[-CHANGES_KEPT:]
            self._changes = {(change.step, change.from_workers, change.to_workers): change for change in kept}
            values = {name: getattr(progress, name) for name in Progress.__dataclass_fields__}
            self._on_progress(Progress(**{**values, "changes": tuple(kept)}))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, receive: Callable[[Progress], None]) -> None:
        self.receive = receive
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # http.server's own asks the resolver for the address' name, which may take it seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 5.0

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        try:
            if self.path != "/progress" or not 0 < length <= _LARGEST_REPORT:
                raise ValueError(f"expected a report on /progress of at most {_LARGEST_REPORT} bytes")  # noqa: TRY301
            self.server.receive(parse(Progress, self.rfile.read(length).decode()))
        except ValueError as error:
            self.send_error(400, str(error))
        else:
            self.send_response(204)
            self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Says nothing: a line a report would drown the log."""
