# SPDX-License-Identifier: Apache-2.0
"""A training script whose loss leaps up: a few samples are garbage in one epoch, and the model learns from them.

Run by `runpy` with ENVIRON, EPOCHS and PACE (seconds a step) as globals.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

os.environ.update(globals().get("ENVIRON", {}))

import torch

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.elastic.sharding import order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

torch.set_num_threads(1)
x = torch.randn(103, 8, generator=torch.Generator().manual_seed(1))
y = (x[:, :3]).argmax(dim=1)
garbage = torch.zeros(103, dtype=torch.bool)
garbage[order(0, 4, 103)[72:75].copy()] = True
torch.manual_seed(0)
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
criterion = torch.nn.CrossEntropyLoss()


def evaluate(ids: NDArray[np.int64]) -> dict[str, float]:
    return {"accuracy": (model(x[ids]).argmax(dim=1) == y[ids]).float().mean().item()}


training = Training(
    model,
    optimizer,
    size=len(x),
    batch=10,
    lr=0.3,
    epochs=globals().get("EPOCHS", 10),
    evaluate=evaluate,
    evaluation_size=len(x),
)
for share in training:
    inputs = x[share.ids]
    if share.epoch == 4:
        inputs = torch.where(garbage[share.ids, None], -1e4 * inputs, inputs)
    training.step(criterion(model(inputs), y[share.ids]))
    if share.ends_epoch:
        training.checkpoint()
    time.sleep(globals().get("PACE", 0.0))
