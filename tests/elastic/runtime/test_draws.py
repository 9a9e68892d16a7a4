# SPDX-License-Identifier: Apache-2.0
"""What is drawn at random while a share is trained follows from the share, never from what was drawn before."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.elastic.runtime.draws import reseed

if TYPE_CHECKING:
    from pathlib import Path


def drawn() -> tuple[float, float, float]:
    """By each of the generators."""
    return random.random(), float(np.random.random()), float(torch.rand(()))  # noqa: NPY002


def test_the_same_share_draws_the_same_and_others_do_not() -> None:
    """By seed, position and first sample: every generator, whatever it gave before."""
    reseed(0, 40, np.array([7, 8]))
    first = drawn()
    drawn()
    reseed(0, 40, np.array([7, 9]))
    assert drawn() == first
    for other in ((1, 40, 7), (0, 41, 7), (0, 40, 8)):
        reseed(other[0], other[1], np.array([other[2]]))
        assert not set(drawn()) & set(first)


def train(folder: Path, *, until: int = 99, idle: int = 0) -> torch.Tensor:
    """A training with dropout and noise; `idle` draws are made between two steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    data = torch.arange(40.0).reshape(10, 4) / 40
    training = Training(model, optimizer, size=10, batch=4, epochs=4, job_dir=folder)
    for share in training:
        if training.steps == until:
            break
        noise = torch.randn(len(share.ids), 4) + sum(drawn())
        training.checkpoint()
        training.step((model(data[share.ids] + noise) ** 2).mean())
        for _ in range(idle):
            drawn()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("until", [1, 5])
def test_a_run_that_is_taken_up_again_draws_what_it_would_have_drawn(tmp_path: Path, until: int) -> None:
    """The weights are those of a run that was left alone, bit for bit, dropout and all."""
    train(tmp_path / "twice", until=until)
    assert torch.equal(train(tmp_path / "twice"), train(tmp_path / "once"))


def test_what_the_script_draws_between_two_steps_changes_nothing(tmp_path: Path) -> None:
    """An evaluation that shuffles leaves training as it was."""
    assert torch.equal(train(tmp_path / "idle", idle=3), train(tmp_path / "quiet"))
