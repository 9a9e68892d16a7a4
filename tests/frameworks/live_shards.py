# SPDX-License-Identifier: Apache-2.0
"""A model sharded over the processes of each worker; trains slowly until the file exists that it is given."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard

from kfp_volcano.elastic.runtime import Training, worker_mesh

x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
mesh = worker_mesh()
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
training = Training(model, optimizer, size=len(x), batch=32, epochs=1000)
for share in training:
    training.step(model(x[share.ids]).square().mean())
    if share.ends_epoch and training.first:
        sys.stdout.write(f"{training.workers} workers: epoch {share.epoch + 1}\n")
        sys.stdout.flush()
    if not Path(sys.argv[1]).exists():
        time.sleep(0.25)
