# SPDX-License-Identifier: Apache-2.0
"""A KFP backend on a port of this machine: strict on every request, with a memory, and ill when it is told to be."""

from __future__ import annotations

import email.parser
import email.policy
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from apiserver.certificates import Pair
from apiserver.faults import Refuse, Reset, Seen
from kfpapi.description import Operation, operations, problems
from kfpapi.state import Backend, Refusal

__all__ = ["KfpApi"]

OPERATIONS = operations()
LOG = re.compile(r"/apis/v1alpha1/runs/[^/]+/nodes/([^/]+)/log")
"""What the API server serves beside its description (backend/src/apiserver/main.go)."""
Fault = Refuse | Reset


@dataclass
class KfpApi:
    """The server. `violations` holds what requests had in them that the API's description does not know."""

    backend: Backend
    token: str = ""
    """The bearer token that is asked for; empty: anybody may ask."""
    fault: Callable[[Seen], Fault | None] = lambda _: None
    identity: Pair | None = None
    """With it the server speaks TLS."""
    tick_s: float = 0.0
    """How much time goes on with each request, for clients that wait by a clock of their own."""
    violations: list[str] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    _server: Any = None

    @property
    def url(self) -> str:
        """Where it is."""
        scheme = "https" if self.identity else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Begin to answer."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def answer(self) -> None:
                api._answer(self)

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = answer  # noqa: N815 - http.server's names

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Say nothing of clients that leave."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if self.identity:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.identity.certificate, self.identity.key)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        seen = Seen(handler.command, handler.path, {name.title(): text for name, text in handler.headers.items()})
        with self._lock:
            self.seen.append(seen)
            fault = self.fault(seen)
            if isinstance(fault, Reset) and not fault.carried_out:
                return _reset(handler)
            if isinstance(fault, Refuse):
                said = fault.body if fault.body is not None else {"error": fault.message, "code": 14}
                return _send(handler, fault.status, said, fault.headers)
            self.backend.now += timedelta(seconds=self.tick_s)
            status, value = self._carried_out(seen, body)
            self.backend.note()
        return _reset(handler) if isinstance(fault, Reset) else _send(handler, status, value, {})

    def _carried_out(self, seen: Seen, body: bytes) -> tuple[int, Any]:
        if self.token and seen.headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {"error": "Request header error: there is no user identity header.", "code": 16}
        log = LOG.fullmatch(seen.path)
        if log and seen.method == "GET":
            answer = self.backend.log(log[1])
            return 200, answer.encode() if isinstance(answer, str) else answer
        try:
            operation, arguments = self._understood(seen, body)
            answer = getattr(self.backend, operation.name)(**arguments)
        except Refusal as refusal:
            return refusal.status, refusal.body
        self.violations += problems(answer, operation.answer or "object", f"the answer to {operation.name}")
        return 200, answer

    def _understood(self, seen: Seen, body: bytes) -> tuple[Operation, dict[str, Any]]:
        """The operation and its arguments; what the description does not know is a violation, and refused."""
        url = urlsplit(seen.path)
        matches = [
            (each, match)
            for each in OPERATIONS
            if each.method == seen.method and (match := each.path.fullmatch(url.path))
        ]
        if not matches:
            raise self._violation(f"{seen.method} {url.path} is no operation")
        operation, match = min(matches, key=lambda pair: len(pair[1].groups()))
        arguments: dict[str, Any] = {name: unquote(value) for name, value in match.groupdict().items()}
        for name, value in parse_qsl(url.query, keep_blank_values=True):
            if name not in operation.query:
                raise self._violation(f"{operation.name} has no parameter {name}")
            if operation.query[name] == "int" and not value.isdigit():
                raise self._violation(f"{operation.name}: {name}={value!r} is no int")
            arguments[name] = value
        if operation.files:
            arguments |= _files(seen, body)
        elif operation.body is not None:
            arguments["body"] = json.loads(body)
            found = problems(arguments["body"], operation.body, operation.body)
            if found:
                raise self._violation(f"{operation.name}: {'; '.join(found)}")
        elif body:
            raise self._violation(f"{operation.name} takes no body: {body[:80]!r}")
        if not hasattr(self.backend, operation.name):
            raise self._violation(f"{operation.name} is not played by this server")
        return operation, arguments

    def _violation(self, text: str) -> Refusal:
        self.violations.append(text)
        return Refusal(400, text)


def _files(seen: Seen, body: bytes) -> dict[str, tuple[str, bytes]]:
    kind = seen.headers["Content-Type"].encode()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
        b"Content-Type: " + kind + b"\r\n\r\n" + body
    )
    found = {}
    for part in message.iter_parts():
        parameters = part["content-disposition"].params
        found[parameters["name"]] = (parameters["filename"], part.get_payload(decode=True))
    return found


def _send(handler: BaseHTTPRequestHandler, status: int, value: Any, headers: Any) -> None:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    handler.send_response(status)
    for name, text in {"Content-Type": "application/json", **headers}.items():
        handler.send_header(name, text)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def _reset(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    with suppress(OSError):
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
