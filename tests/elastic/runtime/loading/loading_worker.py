# SPDX-License-Identifier: Apache-2.0
"""The training script of the tests of loaders: the data of ../worker.py, and a note of each sample that is fetched.

Run by `runpy` in a process of its own, with ENVIRON, EPOCHS, PACE (seconds a step), FETCHED (a folder) and WORKERS as
globals.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

os.environ.update(globals().get("ENVIRON", {}))

import torch

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.schemas import names

torch.set_num_threads(1)


class Points:
    """Tensors, one sample at a time, that remembers who asked for what."""

    def __init__(self) -> None:
        self.x = torch.randn(103, 8, generator=torch.Generator().manual_seed(1))
        self.y = self.x[:, :3].argmax(dim=1)
        owner = f"{os.environ.get(names.ENV_POD, 'alone')}-{os.getpid()}"
        self.notes = Path(globals()["FETCHED"], owner) if "FETCHED" in globals() else None

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.notes is not None:
            # What is drawn tells the samples of different epochs apart. Lines of several processes do not mix.
            with self.notes.open("a") as file:
                file.write(f"{index} {random.getrandbits(64)}\n")
        return self.x[index], self.y[index]


points = Points()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = torch.nn.CrossEntropyLoss()
epochs = globals().get("EPOCHS", 10)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=11 * epochs)
training = Training(model, optimizer, size=len(points), batch=10, lr=scheduler, epochs=epochs)
for _, (x, y) in training.loader(points, workers=globals().get("WORKERS", 2)):
    training.step(criterion(model(x), y))
    time.sleep(globals().get("PACE", 0.0))
