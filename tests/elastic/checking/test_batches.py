# SPDX-License-Identifier: Apache-2.0
"""KV103: batches that follow the size, under any name or none."""
# ruff: noqa: E501 - the lines of the scripts are data

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    "lines",
    [
        "def total_batch():\n    return 16 * int(os.environ['WORLD_SIZE'])\nn = total_batch()",
        "n = 32 * world\nwhile samples < 9:\n    ids = order[samples : samples + n]",
        "while samples < 9:\n    samples += 32 * world",
        "n = per_device * world\nwhile samples < 9:\n    samples += n",
    ],
)
def test_a_batch_by_the_size_is_found_under_any_name(restart: Any, lines: str) -> None:
    """By what a function is called, and by what the position moves on with."""
    assert restart(before="per_device = 8\norder = list(range(99))\n" + lines) == ["KV103"]


@pytest.mark.parametrize(
    "lines",
    [
        "share = GLOBAL_BATCH // world\nwhile samples < 9:\n    samples += share * world\n    assert GLOBAL_BATCH % world == 0",
        "while samples < 9:\n    samples += GLOBAL_BATCH",
        "while samples < 9:\n    done = order[samples : samples + GLOBAL_BATCH]\n    samples += len(done)",
    ],
)
def test_a_position_that_moves_by_whole_batches_is_right(restart: Any, lines: str) -> None:
    """Also where it is put together from equal shares."""
    assert restart(before="order = list(range(99))\n" + lines) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("DataLoader(ds, batch_size=32, sampler=DistributedSampler(ds))", {"KV103", "KV201"}),
        ("DataLoader(ds, 32, sampler=DistributedSampler(ds))", {"KV103", "KV201"}),
        (
            "sampler = DistributedSampler(ds)\nDataLoader(ds, batch_size=args.batch_size, sampler=sampler)",
            {"KV103", "KV201"},
        ),
        ("DataLoader(ds, batch_size=64 // dist.get_world_size(), sampler=DistributedSampler(ds))", {"KV106", "KV201"}),
        ("accelerator.prepare(DataLoader(ds, batch_size=16, shuffle=True))", {"KV103", "KV201"}),
        ("fabric.setup_dataloaders(DataLoader(ds, batch_size=16, shuffle=True))", {"KV103", "KV201"}),
        ("lightning.Trainer(devices=-1).fit(model, DataLoader(ds, batch_size=16, shuffle=True))", {"KV103", "KV201"}),
        (
            "transformers.Trainer(model, transformers.TrainingArguments('out', per_device_train_batch_size=8))",
            {"KV103", "KV201"},
        ),
        ("lightning.Trainer(devices=1).fit(model, DataLoader(ds, batch_size=16, shuffle=True))", set()),
        ("Accelerator(split_batches=True).prepare(DataLoader(ds, batch_size=16, shuffle=True))", {"KV201"}),
        ("DataLoader(held_out, batch_size=256)", set()),
    ],
)
def test_samples_for_each_worker_are_a_batch_by_the_size(codes: Any, lines: str, expected: set[str]) -> None:
    """Where a library shares the loader out; not where the batch is divided, or one process trains."""
    head = """
import lightning
import torch
import torch.distributed as dist
import transformers
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler

torch.manual_seed(0)

def main(args, model, ds, held_out, accelerator, fabric, sampler):
    sampler.set_epoch(0)
"""
    found = codes(head + "".join(f"    {line}\n" for line in lines.splitlines()))
    assert set(found) - {"KV306"} == expected
