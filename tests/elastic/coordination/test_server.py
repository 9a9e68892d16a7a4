# SPDX-License-Identifier: Apache-2.0
"""The coordinator's small server."""

from __future__ import annotations

import json
import socket
import struct
import threading
import urllib.request
from typing import TYPE_CHECKING

from kfp_volcano.elastic.coordination.server import Server

if TYPE_CHECKING:
    import pytest

HOST, PORT = "127.65.0.1", 29519
REQUEST = b"POST /x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"
ABORT = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset."""


def test_who_goes_before_the_answer_leaves_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    """A killed pod breaks its connection; the log has no word of it, and others are answered."""
    others = set(threading.enumerate())  # servers of other tests may have threads that stay
    asked, gone, answered = threading.Event(), threading.Event(), threading.Event()

    def answer(text: str) -> str:
        asked.set()
        gone.wait()
        answered.set()
        return json.dumps({"asked": text})

    server = Server(HOST, PORT, "/x", answer)
    try:
        with socket.create_connection((HOST, PORT)) as killed:
            killed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
            killed.sendall(REQUEST)
            asked.wait()
        gone.set()
        answered.wait()
        with urllib.request.urlopen(f"http://{HOST}:{PORT}/x", data=b"{}") as other:
            assert json.load(other) == {"asked": "{}"}
    finally:
        server.stop()
    for thread in set(threading.enumerate()) - others:
        if "process_request_thread" in thread.name:
            thread.join()
    assert capfd.readouterr().err == ""
