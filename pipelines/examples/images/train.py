# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network to read letters in fonts that it has not seen.

`python train.py` trains with one worker, without any Job.
"""

from __future__ import annotations

import argparse

import torch
from letters import LETTERS, samples  # type: ignore[import-not-found]  # it lies beside this file
from torch import nn

from kfp_volcano.elastic.runtime import Training


def network(width: int) -> nn.Module:
    """Images (n, 1, 24, 24) to logits (n, letters)."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        # Group norm looks at one sample. Batch norm's statistics are those of a worker's share, so the curve would
        # depend on the number of workers; dropout would, too, by the random numbers of each.
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(
        *block(1, width), *block(width, 2 * width), *block(2 * width, 4 * width),
        nn.Flatten(), nn.Linear(4 * width * 9, len(LETTERS)),
    )  # fmt: skip


def main() -> None:
    """Trains; the arguments are on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the samples")
    parser.add_argument("--batch", type=int, default=64, help="samples a step, over all workers")
    parser.add_argument("--lr", type=float, default=0.05, help="at the beginning; it falls to nothing")
    parser.add_argument("--width", type=int, default=8, help="channels after the first layer")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = (part.to(device) for part in samples(test=False))
    x_test, y_test = (part.to(device) for part in samples(test=True))
    torch.manual_seed(args.seed)
    model = network(args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-3)
    criterion = nn.CrossEntropyLoss()
    total = len(y) * args.epochs

    training = Training(
        model,
        optimizer,
        size=len(y),
        batch=args.batch,
        # A function of samples, not of steps: it does not matter how many workers there were.
        lr=lambda samples: args.lr * (1 - samples / total),
        epochs=args.epochs,
        seed=args.seed,
    )
    for share in training:
        training.step(criterion(model(x[share.ids]), y[share.ids]))
        if share.ends_epoch and training.first:
            with torch.no_grad():
                accuracy = (model(x_test).argmax(dim=1) == y_test).float().mean().item()
            training.log(accuracy=accuracy)
            print(
                f"epoch {share.epoch + 1}/{args.epochs}  workers {training.workers}  accuracy {accuracy:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
