# SPDX-License-Identifier: Apache-2.0
"""A ledger on a full volume: training waits, and no entry is lost or torn."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.elastic.runtime.journal import PATIENCE_S, Journal
from kfp_volcano.elastic.runtime.surroundings import Surroundings

if TYPE_CHECKING:
    from pathlib import Path


def opened(folder: Path, sleep: Any) -> Journal:
    journal = Journal(Surroundings.read({}, job_dir=folder), sleep=sleep)
    (folder / "ledger").mkdir()
    journal._file = os.open(folder / "ledger" / "w.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return journal


def test_training_waits_for_room_and_the_entry_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that is cut short goes on where it was cut once there is room."""
    room = [7, 0, 0, 100_000]
    real = os.write

    def write(file: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[: room.pop(0)])

    journal = opened(tmp_path, lambda _: room.pop(0))
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        journal.leave(3, "finished")
    journal.close()
    [line] = (tmp_path / "ledger" / "w.jsonl").read_text().splitlines()
    assert (json.loads(line)["step"], json.loads(line)["reason"]) == (3, "finished")


@pytest.mark.parametrize(("number", "waits"), [(errno.ENOSPC, PATIENCE_S), (errno.EIO, 0.0)])
def test_a_volume_that_stays_full_or_is_broken_ends_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, waits: float
) -> None:
    """An unrecorded step must not count: after a time, and at once for any other error, it is raised."""
    slept: list[float] = []

    def write(*_: Any) -> int:
        raise OSError(number, "refused")

    journal = opened(tmp_path, slept.append)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        with pytest.raises(OSError, match="refused"):
            journal.leave(3, "finished")
    journal.close()
    assert sum(slept) == waits
