"""The training script of the tests for workers of several processes: `worker.py` in float64, sharded by FSDP2.

Run by `runpy` in a process of its own, with ENVIRON, EPOCHS and PACE (seconds a step) as globals; without SHARDED the
model is whole in each process.
"""

from __future__ import annotations

import os
import time

os.environ.update(globals().get("ENVIRON", {}))

import torch
from torch.distributed.fsdp import fully_shard

from kfp_volcano.elastic.runtime import Training, worker_mesh

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
training = Training(model, optimizer, size=len(x), batch=10, lr=0.01, epochs=globals().get("EPOCHS", 10))
for share in training:
    training.step(criterion(model(x[share.ids]), y[share.ids]))
    time.sleep(globals().get("PACE", 0.0))
