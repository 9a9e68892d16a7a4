# SPDX-License-Identifier: Apache-2.0
"""A script on Training: right, or with batch norm."""

import sys

import torch

from kfp_volcano.elastic.runtime import Training

torch.manual_seed(0)
x = torch.randn(240, 4)
y = x.sum(dim=1, keepdim=True)
norm = torch.nn.BatchNorm1d(8) if "batchnorm" in sys.argv else torch.nn.LayerNorm(8)  # kfp-volcano: ignore[KV601]
model = torch.nn.Sequential(torch.nn.Linear(4, 8), norm, torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
if "broken" in sys.argv:
    raise RuntimeError("this script is broken")
training = Training(model, optimizer, size=240, batch=24, lr=0.05, epochs=3)
for share in training:
    training.step(((model(x[share.ids]) - y[share.ids]) ** 2).mean())
