# SPDX-License-Identifier: Apache-2.0
"""The training script of the tests: what a user would write, on data small enough to compare by hand.

Run by `runpy` in a process of its own, with ENVIRON, EPOCHS, PACE (seconds a step), SLOWNESS (seconds a sample) and
DEAF_AT (a step after which the answer to a request for a quorum is lost) as globals.
"""

from __future__ import annotations

import os
import time

os.environ.update(globals().get("ENVIRON", {}))

import torch
from torchft.manager import Manager

from kfp_volcano.elastic.runtime import Training, replica_group

torch.set_num_threads(1)
deaf_at = globals().get("DEAF_AT")
if deaf_at is not None:
    ask = replica_group.ask_for_quorum

    def ask_and_miss_an_answer(manager: Manager) -> bool | None:
        """What torchft does where a response does not arrive: it raises a TimeoutError, and here that is None."""
        global deaf_at  # noqa: PLW0603
        found = ask(manager)
        if deaf_at is None or training.steps < deaf_at or training.workers < 2:
            return found
        deaf_at = None
        return None

    replica_group.ask_for_quorum = ask_and_miss_an_answer
x = torch.randn(103, 8, generator=torch.Generator().manual_seed(1))
y = (x[:, :3]).argmax(dim=1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = torch.nn.CrossEntropyLoss()
epochs = globals().get("EPOCHS", 10)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=11 * epochs)
training = Training(model, optimizer, size=len(x), batch=10, lr=scheduler, epochs=epochs)
for share in training:
    time.sleep(globals().get("SLOWNESS", 0.0) * len(share.ids))
    training.step(criterion(model(x[share.ids]), y[share.ids]))
    if share.ends_epoch and training.first:
        training.log(accuracy=(model(x).argmax(dim=1) == y).float().mean().item())
    time.sleep(globals().get("PACE", 0.0))
