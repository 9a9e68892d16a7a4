# SPDX-License-Identifier: Apache-2.0
"""KV508: how the losses of workers become one."""
# ruff: noqa: E501 - the lines of the scripts are data

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    "body",
    [
        "training.step(criterion(model(x[share.ids]), y[share.ids]) / training.workers)",
        "loss = loss / training.workers\ntraining.step(loss)",
        "training.step(loss * training.workers)",
        "added = nn.MSELoss(reduction='sum')\nloss = added(model(x[share.ids]), y[share.ids])\ntraining.step(loss)",
        "loss = nn.functional.mse_loss(model(x[share.ids]), y[share.ids], reduction='sum') / 32\ntraining.step(loss)",
        "loss = nn.functional.mse_loss(model(x[share.ids]), y[share.ids], reduction='sum')\nloss = loss / BATCH\ntraining.step(loss)",
        "training.step(of(share.ids, training.workers))",
    ],
)
def test_a_weight_that_training_gives_too_is_found(live: Any, body: str) -> None:
    """A sum, or a mean that is divided by the number of workers, in place or in a function."""
    before = "BATCH = 32\ndef of(ids, workers):\n    return criterion(model(x[ids]), y[ids]) / workers"
    assert live(body, before=before) == ["KV508"]


@pytest.mark.parametrize(
    "body",
    [
        "training.step(loss + 1e-4 * sum(p.pow(2).sum() for p in model.parameters()))",
        "loss = nn.functional.mse_loss(model(x[share.ids]), y[share.ids], reduction='sum') / len(share.ids)\ntraining.step(loss)",
        "added = nn.functional.mse_loss(model(x[share.ids]), y[share.ids], reduction='sum')\nloss = added / share.ids.numel()\ntraining.step(loss)",
        "loss = nn.functional.mse_loss(model(x[share.ids]), y[share.ids], reduction='sum')\nloss /= y[share.ids].shape[0]\ntraining.step(loss)",
        "kl = nn.functional.kl_div(model(x[share.ids]), y[share.ids], reduction='batchmean')\ntraining.step(loss + 0.1 * kl)",
        "print(loss.item() / training.workers)\ntraining.step(loss)",
    ],
)
def test_a_mean_over_the_share_is_right(live: Any, body: str) -> None:
    """However it comes about, and whatever is added to it."""
    assert live(body) == []


@pytest.mark.parametrize(
    "cut",
    ["ids[rank::world]", "ids.tensor_split(world)[rank]", "np.array_split(ids, world)[rank]", "ids.chunk(world)[rank]"],
)
def test_means_of_uneven_parts_are_found(codes: Any, cut: str) -> None:
    """DDP averages what is there as if all workers had fed as many samples."""
    assert codes(_by_hand(f"mine = {cut}", "criterion(model(x[mine]), y[mine])")) == ["KV508"]


@pytest.mark.parametrize(
    ("cut", "loss"),
    [
        (
            "mine = ids[rank::world]",
            "nn.functional.mse_loss(model(x[mine]), y[mine], reduction='sum') * world / len(ids)",
        ),
        ("mine = ids[rank::world]", "criterion(model(x[mine]), y[mine]) * len(mine) * world / len(ids)"),
        (
            "mine = ids[rank::world]\n    weight = world * len(mine) / len(ids)",
            "criterion(model(x[mine]), y[mine]) * weight",
        ),
        ("assert len(ids) % world == 0\n    mine = ids[rank::world]", "criterion(model(x[mine]), y[mine])"),
    ],
)
def test_parts_that_are_weighted_or_of_one_size_are_right(codes: Any, cut: str, loss: str) -> None:
    """Sums over the batch, means by shares, and batches that the number of workers divides."""
    assert codes(_by_hand(cut, loss)) == []


def _by_hand(cut: str, loss: str) -> str:
    return f"""
import os
import signal
import sys
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x, y = torch.zeros(256, 8), torch.zeros(256, 1)
model = DDP(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
seen = 0
if os.path.exists("c.pt"):
    saved = torch.load("c.pt")
    model.load_state_dict(saved["model"])
    seen = saved["seen"]
while seen < 2560:
    ids = torch.arange(seen % 256, seen % 256 + 32)
    {cut}
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen += len(ids)
    if stop:
        if rank == 0:
            torch.save({{"model": model.state_dict(), "seen": seen}}, "c.tmp")
            os.replace("c.tmp", "c.pt")
        sys.exit(143)
"""
