# SPDX-License-Identifier: Apache-2.0
"""A training script on generated data; `step` takes as long as PACE says, whatever the machine.

Run by `runpy` with ENVIRON, EPOCHS, SIZE, BATCH, PACE (seconds a step) and DTYPE as globals. The pace stands for a
GPU's work: as many workers as a test wants find room on two processors.
"""

from __future__ import annotations

import os
import time

os.environ.update(globals().get("ENVIRON", {}))

import torch

from kfp_volcano.elastic.runtime import Training

given = globals()
torch.set_num_threads(1)
dtype = getattr(torch, given.get("DTYPE", "float32"))
x = torch.randn(given["SIZE"], 16, generator=torch.Generator().manual_seed(1), dtype=dtype)
y = x[:, :4].argmax(dim=1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).to(dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = torch.nn.CrossEntropyLoss()
training = Training(model, optimizer, size=len(x), batch=given["BATCH"], lr=0.1, epochs=given["EPOCHS"])
for share in training:
    loss = criterion(model(x[share.ids]), y[share.ids])
    time.sleep(given["PACE"])
    training.step(loss)
