# SPDX-License-Identifier: Apache-2.0
"""Scripts to check, written around the lines in question."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import TYPE_CHECKING

import pytest

from kfp_volcano.elastic.checking.checker import check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIVE = """\
import math
import os
import torch
from torch import nn
from kfp_volcano.elastic.runtime import Training

torch.manual_seed(0)
x, y = torch.zeros(256, 8), torch.zeros(256, 1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
{before}
training = Training(model, optimizer, size=256, batch=32, lr=0.1, epochs=3, seed=0)
for share in training:
    loss = criterion(model(x[share.ids]), y[share.ids])
{body}
{after}
"""

RESTART = """\
import os
import math
import random
import signal
import sys
import time
from pathlib import Path
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset

GLOBAL_BATCH = 64
stop = False


def told(number, frame):
    global stop
    stop = True


def save(state, path):
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def main(args, dataset):
    signal.signal(signal.SIGTERM, told)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples, path = 0, Path("checkpoint.pt")
    if path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        samples = saved["samples"]
{before}
    while samples < 10 * len(dataset):
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(samples // len(dataset)))
        at = samples % len(dataset)
        ids = order[at : at + GLOBAL_BATCH]
        mine = ids[rank::world]
        loss = model(dataset[mine]).sum() * world / len(ids)
        optimizer.zero_grad()
        loss.backward()
{body}
        optimizer.step()
        samples += len(ids)
        if stop:
            if rank == 0:
                save({{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "samples": samples}}, path)
            sys.exit(143)
{after}
"""


@pytest.fixture
def codes(tmp_path: Path) -> Callable[..., list[str]]:
    """The codes found in a script of that text, in its order; further modules by name."""

    def found(text: str, *, live: bool | None = None, **modules: str) -> list[str]:
        for name, module in modules.items():
            (tmp_path / f"{name}.py").write_text(dedent(module))
        path = tmp_path / "train.py"
        path.write_text(dedent(text))
        return [each.code for each in check(path, live=live).findings]

    return found


def _part(text: str, depth: int) -> str:
    return indent(dedent(text).strip("\n"), "    " * depth)


@pytest.fixture
def live(codes: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The codes found in a right script on Training, with lines before the loop, in it, and after it."""
    return lambda body="training.step(loss)", before="", after="": codes(
        LIVE.format(before=_part(before, 0), body=_part(body, 1), after=_part(after, 0))
    )


@pytest.fixture
def restart(codes: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The codes found in a right script that is restarted, with lines before its loop, in it, and after it."""
    return lambda body="", before="", after="": codes(
        RESTART.format(before=_part(before, 1), body=_part(body, 2), after=_part(after, 0))
    )
