# SPDX-License-Identifier: Apache-2.0
"""Random trainings of real workers: sizes, batches, seeds and everything that happens to them drawn at random."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

import live
from live.job import Job
from live.storm import Storm

_SCRIPT = Path(live.__file__).with_name("train.py")
_FULL = 50


def _seeds() -> list[object]:
    """One by default, a few more of those of `--slow`, all with `--full`."""
    many = _FULL if os.environ.get("HYPOTHESIS_PROFILE") == "full" else 5
    return [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, many))]


@pytest.mark.parametrize("seed", _seeds())
def test_each_sample_counts_once_whatever_the_plan(tmp_path: Path, seed: int) -> None:
    """No duplicates and none missing, with any dataset, batch and sizes, through kills, hangs and a restart of all."""
    random = Random(seed)
    size, batch = random.randint(50, 400), random.randint(3, 40)
    steps = 350
    epochs = max(1, steps * batch // size)
    given = {"SIZE": size, "BATCH": batch, "EPOCHS": epochs, "PACE": 0.02}
    job = Job(tmp_path / "job", _SCRIPT, given, settings={"checkpoint_every_s": random.choice([0.2, 1.0])})
    try:
        job.start_coordinator()
        storm = Storm(job, random, least=1, most=random.randint(2, 5))
        storm.begin(random.randint(1, 2))
        for _ in range(random.randint(1, 3)):
            storm.change()
        if random.random() < 0.5:
            for pod in storm.pods:
                job.kill(pod)
            for pod in storm.pods:
                job.start(pod)
        assert [job.exit_code(pod) for pod in storm.pods] == [0] * len(storm.pods)
        audit = job.audit()
    finally:
        job.end()
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing) == (0, 0)
    assert audit.samples_seen == size * epochs
