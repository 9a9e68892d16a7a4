# SPDX-License-Identifier: Apache-2.0
"""Sum up with MPI: each process adds its part of a series of numbers, an all-reduce makes the sum of all of them.

Started by mpirun. With `--checkpoint` it goes on where the processes before it ended, with whatever number there are
now; with `--until` it works until somebody creates that file, for as long as one wants to resize it.
"""

import argparse
import os
from pathlib import Path

from mpi4py import MPI

NUMBERS = 12


def main() -> None:
    """Add numbers, telling the world and the sum."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10, help="fewest steps")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--until", type=Path)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    step, total = 0, 0
    if options.checkpoint and options.checkpoint.exists():
        step, total = map(int, options.checkpoint.read_text().split())
    step, total = world.bcast((step, total))
    hosts = world.gather(os.environ.get("KFP_VOLCANO_POD", "")) or []
    if rank == 0:
        print(f"world {size} on {len(set(hosts))} pods: begins at step {step}", flush=True)
    first = step
    while True:
        ends = step >= options.steps and (options.until is None or options.until.exists())
        if world.bcast(ends):
            break
        total += world.allreduce(sum(range(step * NUMBERS + rank, (step + 1) * NUMBERS, size)))
        step += 1
        if rank == 0 and options.checkpoint:
            save(f"{step} {total}", options.checkpoint)
        if rank == 0 and step == first + 1:
            print(f"world {size}: step {step} done", flush=True)
    if rank == 0:
        right = total == sum(range(step * NUMBERS))
        print(f"world {size}: {step} steps, the sum is {'right' if right else 'wrong'}", flush=True)


def save(text: str, path: Path) -> None:
    """Write a checkpoint that is whole or not there."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


if __name__ == "__main__":
    main()
