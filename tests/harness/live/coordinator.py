# SPDX-License-Identifier: Apache-2.0
"""The coordinator's process.

Run by `runpy` with HOST, READY (an event) and REPORTS (a file) as globals.
"""

from __future__ import annotations

import threading
from pathlib import Path

from kfp_volcano.elastic.runtime.coordinator import Coordinator
from kfp_volcano.schemas.records import Progress, dump


def keep(progress: Progress) -> None:
    """Appends a report to the file."""
    with Path(globals()["REPORTS"]).open("a") as file:
        file.write(dump(progress) + "\n")


coordinator = Coordinator(globals()["HOST"], keep)
globals()["READY"].set()
threading.Event().wait()
