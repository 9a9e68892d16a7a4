# SPDX-License-Identifier: Apache-2.0
"""A training script one of whose workers is slow, or hangs once.

Run by `runpy` with ENVIRON, EPOCHS, SLOW (seconds a step, by pod) and HANG (the pod that hangs at its tenth share,
unless it did before) as globals.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

os.environ.update(globals().get("ENVIRON", {}))

import torch

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.schemas import names

given = globals()
pod, folder = os.environ[names.ENV_POD], Path(os.environ[names.ENV_JOB_DIR])
torch.set_num_threads(1)
x = torch.randn(103, 8, generator=torch.Generator().manual_seed(1))
y = (x[:, :3]).argmax(dim=1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = torch.nn.CrossEntropyLoss()
training = Training(model, optimizer, size=len(x), batch=10, lr=0.01, epochs=given["EPOCHS"])
for number, share in enumerate(training):
    time.sleep(given["SLOW"].get(pod, 0.01))
    if pod == given["HANG"] and number == 10 and not (folder / "hung").exists():
        (folder / "hung").touch()
        threading.Event().wait()
    training.step(criterion(model(x[share.ids]), y[share.ids]))
