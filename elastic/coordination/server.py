# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server: JSON posted to a path, answered with JSON or with nothing."""

from __future__ import annotations

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Server"]

_LARGEST_BODY = 1 << 20


class Server:
    """Answers from its creation until `stop`, each request in a thread.

    Args:
        host: address to listen on; `::` for all.
        port: where.
        path: the one path that it serves.
        answer: from a request's text to the answer's, or to None for an empty one. A ValueError refuses the request.

    Raises:
        OSError: the port is taken, or the address is not this machine's.
    """

    def __init__(self, host: str, port: int, path: str, answer: Callable[[str], str | None]) -> None:
        self._http = _HttpServer(host, port, path, answer)
        self._thread = threading.Thread(target=self._http.serve_forever, name=f"server {path}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port; what is being answered is left to its threads."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    # Of the kernel's queue: all pods of a large Job may come at once.
    request_queue_size = 1024

    def __init__(self, host: str, port: int, path: str, answer: Callable[[str], str | None]) -> None:
        self.path = path
        self.answer = answer
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # http.server's own asks the resolver for the address' name, which may take it seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Who asked was killed, or has lost patience: that is told to nobody, and no fault of this side.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    timeout = 5.0

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        try:
            if self.path != self.server.path or not 0 < length <= _LARGEST_BODY:
                raise ValueError(f"expected at most {_LARGEST_BODY} bytes on {self.server.path}")  # noqa: TRY301
            answer = self.server.answer(self.rfile.read(length).decode())
        except ValueError as error:
            self.send_error(400, str(error))
            return
        self.send_response(204 if answer is None else 200)
        if answer is not None:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.encode())))
        self.end_headers()
        if answer is not None:
            self.wfile.write(answer.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Says nothing: a line a request would drown the log."""
