# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on the `.npz` files of a folder, with as many workers as the Job has at the moment.

Each file holds `images` (n, 64) and `labels` (n). Every fifth sample of a file is left out: `evaluate.py` uses those.
`python train.py --data DIR` trains with one worker, without any Job.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

from kfp_volcano.elastic.runtime import Training

HELD_OUT = 5


def samples(folder: Path, *, held_out: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of all files, in the order of their names."""
    images, labels = [], []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as part:
            chosen = (np.arange(len(part["labels"])) % HELD_OUT == 0) == held_out
            images.append(part["images"][chosen])
            labels.append(part["labels"][chosen])
    return torch.tensor(np.concatenate(images), dtype=torch.float32) / 16, torch.tensor(np.concatenate(labels))


def network(hidden: int = 128) -> nn.Module:
    """What is trained."""
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def main() -> None:
    """Trains; the arguments are on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=64, help="samples a step, over all workers")
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    x, y = samples(args.data, held_out=False)
    torch.manual_seed(args.seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    training = Training(model, optimizer, size=len(x), batch=args.batch, lr=args.lr, epochs=args.epochs, seed=args.seed)
    for share in training:
        loss = training.step(criterion(model(x[share.ids]), y[share.ids]))
        if share.ends_epoch and training.first:
            print(f"epoch {share.epoch + 1}/{args.epochs}  workers {training.workers}  loss {loss}", flush=True)


if __name__ == "__main__":
    main()
