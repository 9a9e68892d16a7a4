# SPDX-License-Identifier: Apache-2.0
"""Log lines of other processes."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from kfp_volcano.elastic.autoscaler.telling.log_socket import LogSocket, SocketHandler
from kfp_volcano.elastic.autoscaler.telling.narration import formatter


def sender(path: Path) -> SocketHandler:
    """Sends JSON to a socket."""
    handler = SocketHandler(path)
    handler.setFormatter(formatter("json"))
    return handler


def line(text: str) -> logging.LogRecord:
    """Something to say."""
    return logging.makeLogRecord({"name": "one", "msg": text, "levelname": "INFO"})


def test_lines_arrive_whole_and_in_order(tmp_path: Path) -> None:
    """As many as there are, whatever they hold, up to the end."""
    stream = io.StringIO()
    lines = LogSocket(tmp_path / "log", stream)
    one = sender(lines.path)
    for number in range(200):
        one.handle(line(f"{number} ü\n{'x' * 9000}"))
    one.close()
    lines.close()
    messages = [json.loads(each)["message"] for each in stream.getvalue().splitlines()]
    assert messages == [f"{number} ü\n{'x' * 9000}" for number in range(200)]


def test_nobody_listening_is_no_trouble(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line is lost; whoever logs goes on."""
    one = sender(tmp_path / "log")
    one.handle(line("hello"))
    one.close()
    assert capsys.readouterr() == ("", "")
