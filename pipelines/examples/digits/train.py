# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on scikit-learn's handwritten digits, with as many workers as the Job has at the moment.

`python train.py` trains with one worker, without any Job.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from kfp_volcano.elastic.runtime import Training


def main() -> None:
    """Trains; the arguments are on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the samples")
    parser.add_argument("--batch", type=int, default=64, help="samples a step, over all workers")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--hidden", type=int, default=256, help="units of each hidden layer")
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    # The same held-out fifth whatever the seed, so that runs can be compared.
    split = train_test_split(images / 16, labels, test_size=0.2, random_state=0, stratify=labels)
    x, x_test = (torch.tensor(part, dtype=torch.float32) for part in split[:2])
    y, y_test = (torch.tensor(part) for part in split[2:])

    torch.manual_seed(args.seed)
    model = nn.Sequential(
        nn.Linear(64, args.hidden),
        nn.ReLU(),
        nn.Linear(args.hidden, args.hidden),
        nn.ReLU(),
        nn.Linear(args.hidden, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()

    training = Training(model, optimizer, size=len(x), batch=args.batch, lr=args.lr, epochs=args.epochs, seed=args.seed)
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
