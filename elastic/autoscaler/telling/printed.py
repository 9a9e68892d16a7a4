# SPDX-License-Identifier: Apache-2.0
"""What libraries print, as lines of the log: Ray tells of its workers' deaths on standard output, in colours."""

from __future__ import annotations

import io
import logging
import threading

import click

__all__ = ["Printed"]

_log = logging.getLogger(__name__)


class Printed(io.TextIOBase):
    """In place of standard output: each line that is printed is a warning; any thread may print."""

    def __init__(self) -> None:
        self._begun = ""
        self._lock = threading.Lock()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Log the lines that are whole now."""
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            said = click.unstyle(line).strip()
            if said:
                _log.warning("%s", said)
        return len(text)
