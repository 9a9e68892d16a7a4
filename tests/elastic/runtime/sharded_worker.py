# SPDX-License-Identifier: Apache-2.0
"""The training script of the tests for workers of several processes: `worker.py` in float64, sharded by FSDP2.

Run by `runpy` in a process of its own, with ENVIRON, EPOCHS and PACE (seconds a step) as globals; without SHARDED the
model is whole in each process. MOST samples fit a worker at once. With SCALED the loss is scaled, and the gradient of
OVERFLOWS (a step) is not finite in the last layer's first row, which one process of a worker has. The storage refuses
the first shards of the process with LOCAL_RANK REFUSED.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager

os.environ.update(globals().get("ENVIRON", {}))

import torch
from torch.distributed.fsdp import fully_shard

from kfp_volcano.elastic.runtime import Batch, Training, worker_mesh
from kfp_volcano.elastic.runtime.checkpoints.store import Folder

if os.environ.get("LOCAL_RANK") == globals().get("REFUSED", "none"):
    writing, refused = Folder.writing, []

    @contextmanager
    def refuse(self: Folder, path: str):
        if path.endswith(".distcp") and not refused:
            refused.append(path)
            raise OSError(errno.ENOSPC, "no space is left", path)
        with writing(self, path) as file:
            yield file

    Folder.writing = refuse

torch.set_num_threads(1)
x = torch.randn(103, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
y = (x[:, :3]).argmax(dim=1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 15), torch.nn.Tanh(), torch.nn.Linear(15, 3)).double()
if globals().get("SHARDED", True):
    mesh = worker_mesh()
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = torch.nn.CrossEntropyLoss()
batch = Batch(size=10, max_per_worker=globals().get("MOST"))
scaler = torch.amp.GradScaler("cpu", enabled=globals().get("SCALED", False))
training = Training(
    model, optimizer, size=len(x), batch=batch, lr=0.01, epochs=globals().get("EPOCHS", 10), scaler=scaler
)
for share in training:
    outputs = model(x[share.ids])
    if training.steps == globals().get("OVERFLOWS"):
        outputs.register_hook(lambda grad: grad * torch.tensor([torch.inf, 1.0, 1.0], dtype=grad.dtype))
    training.step(criterion(outputs, y[share.ids]))
    time.sleep(globals().get("PACE", 0.0))
