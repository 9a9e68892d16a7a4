# SPDX-License-Identifier: Apache-2.0
"""The examples reach the accuracy that their page states, though they are resized while they train."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from example_job import ExampleJob

pytestmark = pytest.mark.timeout(600)

ENOUGH = "enough"
"""The file that ends the pace, on the checkpoint volume."""
ROW = re.compile(r"^\| `([a-z_/]+\.yaml)` \|.*\| (0\.\d+) \|", re.MULTILINE)
STATED = {
    name: float(accuracy)
    for name, accuracy in ROW.findall((Path(__file__).parents[2] / "docs" / "examples.md").read_text())
}
"""Of each example, by its spec's path, the accuracy on its page."""

LIVE = ["digits/job.yaml", "text/job.yaml", "images/job.yaml"]
RESTARTED = {
    "tensorflow/mirrored.yaml": ("workers {}", 1),
    "tensorflow/parameter_servers.yaml": ("workers {}", 1),
    "mpi/job.yaml": ("world {}", 2),
}
"""How they tell their size, and how many processes a worker has."""
MISSING = {
    "tensorflow": "" if importlib.util.find_spec("tensorflow") else "TensorFlow is not installed",
    "mpi": "" if shutil.which("mpirun") and importlib.util.find_spec("mpi4py") else "MPI or mpi4py is not installed",
}


def test_the_page_states_an_accuracy_for_every_example() -> None:
    """What these tests hold the examples to is what the reader is told."""
    assert set(STATED) == {*LIVE, *RESTARTED}


def last_accuracy(job: ExampleJob) -> float:
    """What the last epoch's line says, whoever printed it."""
    found = re.findall(r"^epoch (\d+)/(\d+) .* accuracy (\S+)$", job.logs(), re.MULTILINE)
    epoch, epochs, accuracy = max(found, key=lambda each: int(each[0]))
    assert epoch == epochs, job.logs()
    return float(accuracy)


def steps(job: ExampleJob, *, by: int) -> int:
    """How many lines of the ledgers tell of a step that so many workers committed."""
    texts = [path.read_text() for path in job.volume("").rglob("ledger/*.jsonl")]
    lines = [line for text in texts for line in text.splitlines() if '"commit"' in line and line.endswith("}")]
    return sum(json.loads(line)["world"] == by for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVE)
def test_a_live_example_reaches_its_accuracy_though_resized(train: Callable[[str], ExampleJob], name: str) -> None:
    """From two workers to four and back, in the middle of training."""
    job = train(name)
    job.until(lambda _: steps(job, by=2), "a step by two workers")
    for size in (4, 2):
        before = steps(job, by=size)
        job.resize(size)
        job.until(lambda _: steps(job, by=size) > before, f"a step by {size} workers")  # noqa: B023 - called at once
    job.volume(ENOUGH).touch()
    assert job.end() == "Completed", job.logs()
    assert last_accuracy(job) >= STATED[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", RESTARTED)
def test_a_restarted_example_reaches_its_accuracy_though_resized(train: Callable[[str], ExampleJob], name: str) -> None:
    """To three workers, then to one: each time all begin anew where the checkpoint is, and say of how many they are."""
    if reason := MISSING[name.partition("/")[0]]:
        pytest.skip(reason)
    words, processes = RESTARTED[name]
    job = train(name)
    job.until_printed(": begins in epoch 1\n")
    for size in (3, 1):
        before = len(re.findall(words.format(size * processes) + ": begins", job.logs()))
        job.resize(size)
        job.until_printed(words.format(size * processes) + ": begins", times=before + 1)
    job.volume(ENOUGH).touch()
    assert job.end() == "Completed", job.logs()
    assert last_accuracy(job) >= STATED[name]
