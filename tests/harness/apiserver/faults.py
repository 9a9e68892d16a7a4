# SPDX-License-Identifier: Apache-2.0
"""A proxy that does harm: it stands between a client and an API server, or plays a server that is never well.

Requests come as plain HTTP. Each is answered by the next fault that was planned for requests like it, or else passed
on to the server, as it is.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3
import yaml

from apiserver.certificates import Pair

__all__ = ["Cut", "Fault", "FaultyProxy", "Refuse", "Reset", "Seen", "Stall"]

_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that arrived."""

    method: str
    path: str
    headers: Mapping[str, str] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server is not asked; this is the answer."""

    status: int
    message: str = "injected"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | bytes | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset: before the server is asked, or after it has done as it was asked."""

    carried_out: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed after so many bytes of the answer's body."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class Stall:
    """So many bytes of the answer's body come, and then nothing any more."""

    after: int = 0


Fault = Refuse | Reset | Cut | Stall


class FaultyProxy:
    """`url` is its address, and `seen` what has been asked."""

    def __init__(self, server: str = "", authority: Path | None = None, identity: Pair | None = None) -> None:
        """In front of `server`, asked with the certificate of `identity`; without one, all must be faults."""
        self._server = server
        self._plans: list[tuple[Callable[[Seen], bool], list[Fault]]] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.seen: list[Seen] = []
        self._pool = urllib3.PoolManager(
            maxsize=32,
            retries=False,
            ca_certs=authority and str(authority),
            cert_file=identity and str(identity.certificate),
            key_file=identity and str(identity.key),
        )
        proxy = self

        class Handler(_Handler):
            faults = proxy

        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._listener.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._listener.server_address[1]}"
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.05,))

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """End, and with it every answer that stalls."""
        self._over.set()
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()
        self._pool.clear()

    def plan(self, *faults: Fault, when: Callable[[Seen], bool] = lambda seen: True) -> None:
        """Do these, one after the other, to the next requests of which `when` is true."""
        with self._lock:
            self._plans.append((when, list(faults)))

    def kubeconfig(self, folder: Path, user: Mapping[str, str] | None = None, **cluster: str) -> Path:
        """A kubeconfig that leads here."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "faulty", "cluster": {"server": self.url, **cluster}}],
            "users": [{"name": "user", "user": dict(user or {})}],
            "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "user"}}],
            "current-context": "faulty",
        }
        file = folder / "faulty.kubeconfig"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        return file

    def next_fault(self, seen: Seen) -> Fault | None:
        """What is to be done to a request."""
        with self._lock:
            self.seen.append(seen)
            for when, faults in self._plans:
                if faults and when(seen):
                    return faults.pop(0)
            return None

    def ask(self, seen: Seen, body: bytes | None) -> urllib3.BaseHTTPResponse:
        """The server's answer, its body still to be read."""
        passed = {name: value for name, value in seen.headers.items() if name.lower() not in {*_HOP_BY_HOP, "host"}}
        path = seen.path.removeprefix(self._server)
        return self._pool.request(
            seen.method, self._server + path, body=body, headers=passed, preload_content=False, timeout=120.0
        )

    def wait(self) -> None:
        """Until the test is over."""
        self._over.wait()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    faults: FaultyProxy

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        seen = Seen(self.command, self.path, dict(self.headers))
        fault = self.faults.next_fault(seen)
        if isinstance(fault, Refuse):
            self._refuse(fault)
        elif isinstance(fault, Reset):
            if fault.carried_out:
                self.faults.ask(seen, body).read()
            self._reset()
        else:
            self._pass_on(seen, body, fault)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815  # http.server's names

    def _refuse(self, fault: Refuse) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "code": fault.status, "message": fault.message}
        body = fault.body if isinstance(fault.body, bytes) else json.dumps(fault.body or status).encode()
        self.send_response(fault.status)
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self, seen: Seen, body: bytes | None, fault: Cut | Stall | None) -> None:
        answer = self.faults.ask(seen, body)
        try:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            left = None if fault is None else fault.after
            for chunk in answer.stream(65536):
                part = chunk if left is None else chunk[:left]
                left = None if left is None else left - len(part)
                if part:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                if left == 0:
                    self._break_off(fault)
                    return
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # the client has left, or the server broke off: so does this
            self._reset()
        except urllib3.exceptions.HTTPError:
            self._reset()
        finally:
            answer.close()

    def _break_off(self, fault: Fault | None) -> None:
        if isinstance(fault, Stall):
            self.faults.wait()
        self.close_connection = True

    def _reset(self) -> None:
        """End the connection with an RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def finish(self) -> None:
        """Close what is still open."""
        try:
            super().finish()
        except (OSError, ValueError):  # it was reset
            return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Nothing: tests are quiet."""
