# SPDX-License-Identifier: Apache-2.0
"""A node's kubelet, as far as its logs go: the API server asks it, and it answers what a test has printed."""

from __future__ import annotations

import ssl
import threading
from collections import defaultdict
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from apiserver.certificates import Pair

__all__ = ["LogKubelet"]

_FOLLOW_S = 0.02


class LogKubelet:
    """Serves `/containerLogs/<namespace>/<pod>/<container>` over TLS on `port`."""

    def __init__(self, identity: Pair) -> None:
        self.runs: dict[str, list[list[bytes]]] = defaultdict(list)
        """By `<namespace>/<pod>/<container>`: the runs of a container, and the lines of each with their times."""
        self.asked: list[str] = []
        self._over = threading.Event()
        kubelet = self

        class Handler(_Handler):
            served = kubelet

        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._listener.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.certificate, identity.key)
        self._listener.socket = context.wrap_socket(self._listener.socket, server_side=True)
        self.port = int(self._listener.server_address[1])
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.05,))

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End, and with it every stream."""
        self._over.set()
        self._listener.shutdown()
        self._thread.join()
        self._listener.server_close()

    def print(self, container: str, text: str) -> None:
        """Let a container print a line now."""
        now = datetime.now(timezone.utc)
        self.runs[container][-1].append(f"{now:%Y-%m-%dT%H:%M:%S.%f}000Z {text}\n".encode())

    def wait(self) -> bool:
        """A moment; False when it is over."""
        return not self._over.wait(_FOLLOW_S)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: LogKubelet

    def do_GET(self) -> None:
        self.served.asked.append(self.path)
        address = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        runs = self.served.runs[address.path.removeprefix("/containerLogs/")]
        back = 2 if query.get("previous") == "true" else 1
        if len(runs) < back:
            body = b"there is no such run"
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        run, told = runs[-back], 0
        since = query.get("sinceTime", "").rstrip("Z").encode()
        while True:
            for line in run[told:]:
                if line[:19] >= since[:19]:
                    self._send(line)
            told = len(run)
            present = query.get("follow") == "true" and runs[-1] is run
            if not present or not self.served.wait():
                break
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Nothing: tests are quiet."""
