"""PyTorch under torchrun: a fixed number of pods, and one that changes."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def test_processes_of_two_pods_reduce_together(train: Any) -> None:
    """Two pods of two processes are a world of four, and fit the line."""
    training = train("pytorch-fixed")
    assert training.end() == "Completed", training.logs()
    printed = training.logs()
    assert "world 4: begins at step 0" in printed
    assert "weight 3.0000" in printed


def test_a_resized_job_begins_anew_from_its_checkpoint(train: Any) -> None:
    """From two pods to three and back: each time all go on from the last step with the new number of processes."""
    training = train("pytorch-restart")
    phases = [("world 4", 2), ("world 6", 3), ("world 4", 2)]
    for number, (world, size) in enumerate(phases):
        if number:
            training.resize(size)
        training.until_printed(f"{world}: step", times=1 if number < 2 else 2)
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    begun = [int(step) for step in re.findall(r"begins at step (\d+)", training.logs())]
    assert begun[0] == 0
    assert len([step for step in begun if step > 0]) >= 2
