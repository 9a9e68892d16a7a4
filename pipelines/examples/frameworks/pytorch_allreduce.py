# SPDX-License-Identifier: Apache-2.0
"""Fit a line with data-parallel PyTorch: each process computes a gradient on its share, all of them sum it up (gloo).

Started by torchrun. With `--checkpoint` it goes on where the processes before it ended, with whatever number there
are now; with `--until` it trains until somebody creates that file, for as long as one wants to resize it.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist

SLOPE = 3.0


def main() -> None:
    """Train, telling each step's world and loss."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100, help="fewest steps")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--until", type=Path)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    step, weight = 0, torch.zeros(1)
    if options.checkpoint and options.checkpoint.exists():
        step, weight = torch.load(options.checkpoint, weights_only=True)
    if rank == 0:
        print(f"world {world}: begins at step {step}", flush=True)
    told = False
    while True:
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(24, generator=generator)[rank::world]
        error = x * weight - SLOPE * x
        message = torch.stack([(error * x).sum(), (error**2).sum(), torch.zeros(())])
        if rank == 0 and step >= options.steps and (options.until is None or options.until.exists()):
            message[2] = 1
        dist.all_reduce(message)
        gradient, loss, ends = message.tolist()
        if ends:
            break
        step, weight = step + 1, weight - 0.5 * gradient / 24
        if rank == 0 and options.checkpoint:
            save((step, weight), options.checkpoint)
        if rank == 0 and not told:
            print(f"world {world}: step {step} committed, loss {loss / 24:.6f}", flush=True)
            told = True
    if rank == 0:
        print(f"world {world}: done after step {step}, weight {weight.item():.4f}", flush=True)
    dist.destroy_process_group()


def save(state: tuple[int, torch.Tensor], path: Path) -> None:
    """Write a checkpoint that is whole or not there."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


if __name__ == "__main__":
    main()
