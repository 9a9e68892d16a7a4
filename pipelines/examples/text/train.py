# SPDX-License-Identifier: Apache-2.0
"""Trains a text classifier: to which package of Python's standard library do a few lines belong?

`python train.py` trains with one worker, without any Job.
"""

from __future__ import annotations

import argparse

import torch
from corpus import PACKAGES, VOCABULARY, split  # type: ignore[import-not-found]  # it lies beside this file
from torch import nn

from kfp_volcano.elastic.runtime import Training


class Classifier(nn.Module):
    """The mean of the words' vectors, then two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Dense gradients: sparse ones have another shape on each worker, and cannot be summed.
        self.words = nn.EmbeddingBag(VOCABULARY + 1, width, mode="mean", padding_idx=0)
        # Layer norm looks at one sample; batch norm would depend on how many samples a worker has.
        self.rest = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, len(PACKAGES))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Words (n, m) to logits (n, packages)."""
        logits: torch.Tensor = self.rest(self.words(x))
        return logits


def main() -> None:
    """Trains; the arguments are on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the samples")
    parser.add_argument("--batch", type=int, default=64, help="samples a step, over all workers")
    parser.add_argument("--lr", type=float, default=0.002, help="at the beginning; it falls to nothing")
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()

    (x, y), (x_test, y_test) = split()
    torch.manual_seed(args.seed)
    model = Classifier(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
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
