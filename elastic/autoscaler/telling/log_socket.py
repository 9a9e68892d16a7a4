# SPDX-License-Identifier: Apache-2.0
"""Log lines of several processes of a machine in one stream: each is a datagram to a socket in the file system.

Ray would put a prefix before each line that a worker prints, which then is no JSON any more.
"""

from __future__ import annotations

import logging
import logging.handlers
import socket
import sys
import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LogSocket", "SocketHandler"]

_LONGEST = 200_000
"""Bytes of a line; Linux takes about as many in a datagram by default."""


class SocketHandler(logging.handlers.DatagramHandler):
    """Sends lines to a `LogSocket`. While nobody listens they are lost."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), None)

    def makePickle(self, record: logging.LogRecord) -> bytes:  # noqa: N802 - logging's name
        """The line, instead of a pickle."""
        return self.format(record).encode(errors="replace")[:_LONGEST]

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """There is no better place to tell that a line cannot be told."""


class LogSocket:
    """Writes what arrives to a stream, whole lines each.

    Args:
        path: Where the socket is made.
        stream: Where lines go.
    """

    def __init__(self, path: Path, stream: TextIO = sys.stderr) -> None:
        self.path = path
        self._stream = stream
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what has arrived, and end."""
        self._socket.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._socket.close()

    def _write_all(self) -> None:
        while line := self._socket.recv(_LONGEST):
            self._stream.write(f"{line.decode(errors='replace')}\n")
            self._stream.flush()
