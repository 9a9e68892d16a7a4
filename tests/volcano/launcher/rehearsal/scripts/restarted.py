# SPDX-License-Identifier: Apache-2.0
"""A script that is stopped and started again: right, or with the mistakes that its second argument names."""

import signal
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH, SIZE, STEPS = 12, 240, 400
path, mistakes = Path(sys.argv[1]), sys.argv[2:]
leave = threading.Event()


def told(*_: object) -> None:
    """SIGTERM: finish the step, save, leave."""
    leave.set()


def save(step: int) -> None:
    """Write a checkpoint that is whole or not there."""
    partial = path.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
    partial.replace(path)


if "deaf" not in mistakes:
    signal.signal(signal.SIGTERM, told)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(SIZE, 4)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
step = 0
if path.exists() and "forgetful" not in mistakes:
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
while step < STEPS:
    at = step * GLOBAL_BATCH % SIZE
    ids = torch.arange(at, at + GLOBAL_BATCH)
    mine = ids[rank::world]
    loss = ((model(x[mine]) - x[mine].sum(dim=1, keepdim=True)) ** 2).sum() * world / GLOBAL_BATCH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    # All leave at the same step, or those who stay would wait for those who have left.
    leaving = torch.tensor(float(leave.is_set()))
    dist.all_reduce(leaving, op=dist.ReduceOp.MAX)
    if leaving > 0:
        if rank == 0:
            save(step)
        dist.barrier()
        sys.exit(143)
