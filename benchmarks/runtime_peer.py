# SPDX-License-Identifier: Apache-2.0
"""The peers' training script: PyTorch's DistributedDataParallel with a checkpoint each N steps, as tutorials have it.

Run by torchrun, or by `runtime_peers` with the same environment; arguments: folder, checkpoint each N steps, pace in
seconds, the dataset's size, the global batch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

_STOP_EVERY = 5


def main(folder: Path, every: int, pace: float, size: int, batch: int) -> None:
    """Trains until it is told to stop, from the last checkpoint on."""
    leaving = []
    signal.signal(signal.SIGTERM, lambda *_: leaving.append(True))
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    x = torch.randn(size, 16, generator=torch.Generator().manual_seed(1))
    y = x[:, :4].argmax(dim=1)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    step, saved = 0, folder / "checkpoint.pt"
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    while True:
        ids = torch.arange(step * batch + rank, (step + 1) * batch, world) % size
        optimizer.zero_grad()
        loss = criterion(model(x[ids]), y[ids])
        time.sleep(pace)
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            with (folder / "commits").open("a") as file:
                file.write(f"{step} {world} {time.time()}\n")
        stop = torch.tensor([float(bool(leaving))])
        if step % _STOP_EVERY == 0:
            distributed.all_reduce(stop)
        if rank == 0 and (step % every == 0 or (step % _STOP_EVERY == 0 and stop)):
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, folder / ".checkpoint.pt")
            (folder / ".checkpoint.pt").rename(saved)
        if step % _STOP_EVERY == 0 and stop:
            os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
