# SPDX-License-Identifier: Apache-2.0
"""Digits with MPI: each process computes the gradient of its share of a batch, an all-reduce adds them up.

Started by mpirun; `python train.py` trains with one process. With `--checkpoint` it goes on where the processes before
it ended, with whatever number there are now. Plain NumPy, so that the loop is all there is to see.
"""

import argparse
from pathlib import Path

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from kfp_volcano.elastic.sharding import Plan, share

INPUTS, HIDDEN, CLASSES = 64, 64, 10


def main() -> None:
    """Trains; the arguments are on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the samples")
    parser.add_argument("--batch", type=int, default=64, help="samples a step, over all processes")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--checkpoint", type=Path, help="a file on a volume that all processes see")
    args = parser.parse_args()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()

    images, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images / 16, labels, test_size=0.2, random_state=0, stratify=labels)
    plan = Plan(size=len(x), batch=args.batch, epochs=args.epochs, seed=args.seed)
    random = np.random.default_rng(args.seed)
    weights = random.normal(0, 0.1, INPUTS * HIDDEN + HIDDEN * CLASSES)
    momentum, samples = np.zeros_like(weights), 0
    if rank == 0 and args.checkpoint and args.checkpoint.exists():
        with np.load(args.checkpoint) as saved:
            weights, momentum, samples = saved["weights"], saved["momentum"], int(saved["samples"])
    # From the first process: the others might find a newer file, or none yet on a slow volume.
    weights, momentum, samples = world.bcast((weights, momentum, samples))

    cursor = plan.cursor(samples)
    if rank == 0:
        print(f"world {size}: begins in epoch {cursor.epoch + 1}", flush=True)
    while not plan.finished(cursor):
        batch = plan.ids(cursor, args.batch)
        ids = share(batch, rank, size)
        total = np.empty_like(weights)
        # Sums, divided by the samples of the whole batch: the shares differ by one sample.
        world.Allreduce(gradient(weights, x[ids], y[ids]), total)
        momentum = 0.9 * momentum + total / len(batch)
        weights = weights - args.lr * momentum
        epoch, cursor = cursor.epoch, plan.after(cursor, len(batch))
        if cursor.epoch > epoch and rank == 0:
            if args.checkpoint:
                save(args.checkpoint, weights, momentum, plan.samples(cursor))
            accuracy = np.mean(scores(weights, x_test)[1].argmax(axis=1) == y_test)
            print(f"epoch {cursor.epoch}/{args.epochs}  world {size}  accuracy {accuracy:.4f}", flush=True)


def scores(weights: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the hidden layer and the classes have for each sample."""
    hidden = np.maximum(x @ weights[: INPUTS * HIDDEN].reshape(INPUTS, HIDDEN), 0)
    return hidden, hidden @ weights[INPUTS * HIDDEN :].reshape(HIDDEN, CLASSES)


def gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the sum of the samples' cross-entropies."""
    hidden, logits = scores(weights, x)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = chances / chances.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]
    behind = error @ weights[INPUTS * HIDDEN :].reshape(HIDDEN, CLASSES).T * (hidden > 0)
    return np.concatenate([(x.T @ behind).ravel(), (hidden.T @ error).ravel()])


def save(path: Path, weights: np.ndarray, momentum: np.ndarray, samples: int) -> None:
    """Write a checkpoint that is whole or not there: a resize may end the process at any moment."""
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, weights=weights, momentum=momentum, samples=samples)
    partial.replace(path)


if __name__ == "__main__":
    main()
