# SPDX-License-Identifier: Apache-2.0
"""Which worker the watchdog takes for one that hangs, and what becomes of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kfp_volcano.elastic.runtime.events import Events
from kfp_volcano.elastic.runtime.watchdog import HUNG, Watchdog
from kfp_volcano.schemas.events import Kind, read


@pytest.mark.parametrize(
    ("given", "answered", "waited_for", "hangs"),
    [
        (True, False, True, True),
        (True, False, False, False),  # the others are as slow
        (True, True, True, False),  # it waits for them, or evaluates between two steps
        (False, False, True, False),  # no share yet: a loader, a quorum
    ],
)
def test_only_work_on_a_share_that_others_wait_for_hangs(
    tmp_path: Path, given: bool, answered: bool, waited_for: bool, hangs: bool
) -> None:
    """A worker hangs where its own work does not end and somebody waits for that; all else is its right."""
    watchdog = Watchdog(None, waited_for=lambda: waited_for, events=Events(tmp_path, owner="w"))
    watchdog._after_s = 60.0
    if given:
        watchdog.given()
    if answered:
        watchdog.answered()
    assert not watchdog.look(time.monotonic() + 59.0)
    assert watchdog.look(time.monotonic() + 61.0) is hangs


def test_a_worker_that_hangs_says_where_and_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its stack is on standard error, the log of operations has it, and the process ends with a code of its own."""
    ended: list[int] = []
    done = threading.Event()

    def end(code: int) -> None:
        ended.append(code)
        done.set()

    watchdog = Watchdog(0.2, waited_for=lambda: True, events=Events(tmp_path, owner="w"), end=end)
    watchdog.given()
    assert done.wait(60)
    watchdog.close()
    assert ended == [HUNG]
    assert "test_a_worker_that_hangs_says_where_and_ends" in capfd.readouterr().err
    lines = {path.name: path.read_text().splitlines() for path in (tmp_path / "events").iterdir()}
    assert [event.kind for event in read(lines)] == [Kind.HANG]
