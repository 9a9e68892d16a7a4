# SPDX-License-Identifier: Apache-2.0
"""Checkpoints are written beside training, of the state as it was."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kfp_volcano.elastic.runtime.checkpoints import Checkpoints, Saver
from kfp_volcano.elastic.runtime.checkpoints.snapshot import Buffers, Snapshot
from kfp_volcano.elastic.runtime.checkpoints.store import Folder
from kfp_volcano.elastic.runtime.events import Events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Desk:
    """A saver on a folder, and a state that changes."""

    def __init__(self, folder: Path, before: Callable[[], None] = lambda: None) -> None:
        events = Events(None, owner="w-0")
        self.checkpoints = Checkpoints(Folder(folder), keep=9, owner="w-0", events=events)
        self.saver = Saver(self.checkpoints, before=before, patience_s=60.0, events=events)
        self.weight = torch.zeros(3)

    def begin(self, step: int, *, wanted: bool = False) -> bool:
        about = {"step": step, "lineage": f"{step:032x}"[::-1]}
        return self.saver.begin({"model": {"weight": self.weight}}, about, wanted=wanted)

    def found(self) -> dict[int, float]:
        return {manifest.step: float(state["model"]["weight"][0]) for manifest, state in self.checkpoints.whole()}


def test_the_state_that_was_noted_is_written_whatever_follows(tmp_path: Path) -> None:
    """An update waits for the copy, and what it changes is not in the checkpoint."""
    desk = Desk(tmp_path)
    assert desk.begin(1)
    desk.saver.copy()
    desk.saver.copied()
    desk.weight += 1
    desk.saver.finish()
    assert desk.found() == {1: 0.0}


def assert_set(gate: threading.Event) -> None:
    assert gate.wait(60)


def test_one_at_a_time_but_a_wanted_one_waits(tmp_path: Path) -> None:
    """While one is written a second is refused, a wanted one is copied at once, and a further one refused."""
    gate = threading.Event()
    desk = Desk(tmp_path, before=lambda: assert_set(gate))
    assert desk.begin(1)
    assert not desk.begin(2)
    desk.saver.copy()
    desk.saver.copied()
    assert not desk.begin(2)
    desk.weight += 1
    assert desk.begin(2, wanted=True)
    desk.weight += 1
    assert not desk.begin(3, wanted=True)
    gate.set()
    desk.saver.finish()
    assert desk.found() == {1: 0.0, 2: 1.0}
    assert desk.begin(3)
    desk.saver.finish()
    assert desk.found() == {1: 0.0, 2: 1.0, 3: 2.0}


def test_a_refusing_volume_costs_the_checkpoint_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said, nothing is left, and a later one is written."""
    full = [OSError(28, "No space left on device")]

    def before() -> None:
        if full:
            raise full.pop()

    desk = Desk(tmp_path, before)
    assert desk.begin(1)
    desk.saver.finish()
    assert desk.found() == {}
    assert "No space left" in caplog.text
    assert not desk.saver.overdue
    assert desk.begin(2)
    desk.saver.finish()
    assert desk.found() == {2: 0.0}


def test_what_is_only_noted_is_forgotten_at_the_end(tmp_path: Path) -> None:
    """A loop that ends by an error may have changed the state since."""
    desk = Desk(tmp_path)
    assert desk.begin(1)
    desk.saver.close()
    desk.saver.copy()
    desk.saver.finish()
    assert desk.found() == {}


def test_a_snapshot_is_a_copy_in_memory_that_is_used_again() -> None:
    """Containers and shared weights keep their form; the second snapshot needs no more memory."""
    tied = torch.ones(2)
    original: dict[str, Any] = {"a": [torch.zeros(2)], "b": (1, torch.zeros(1)), "c": tied, "d": tied.detach()}
    buffers = Buffers()
    first = Snapshot(original, buffers)
    first.copy()
    original["a"][0] += 1
    assert first.state["a"][0].equal(torch.zeros(2))
    assert isinstance(first.state["b"], tuple)
    assert first.state["c"] is first.state["d"]
    second = Snapshot(original, buffers)
    second.copy()
    assert second.state["a"][0].equal(torch.ones(2))
    assert second.state["a"][0].data_ptr() == first.state["a"][0].data_ptr()
