# SPDX-License-Identifier: Apache-2.0
"""What is printed comes into the log."""

from __future__ import annotations

import logging

import pytest

from kfp_volcano.elastic.autoscaler.telling.printed import Printed


def test_what_is_printed_is_logged_line_by_line(caplog: pytest.LogCaptureFixture) -> None:
    """Without colours; a line counts once it is whole, and empty ones are none."""
    printed = Printed()
    printed.write("\x1b[33m(raylet)\x1b[0m A worker")
    assert caplog.messages == []
    printed.write(" died\n\nand came back\n")
    assert caplog.messages == ["(raylet) A worker died", "and came back"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
