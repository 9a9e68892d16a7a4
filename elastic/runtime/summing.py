# SPDX-License-Identifier: Apache-2.0
"""A step's sum over all processes of all workers, which counts for a worker only where it succeeded in each of its own.

Whole gradients are summed by all processes at once. Sharded ones are sums over their worker already; each process sums
its part with those of the same rank in the other workers, and the rows that came with the parts are put together after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kfp_volcano.elastic.runtime.gradients import Total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.runtime.crew import Crew
    from kfp_volcano.elastic.runtime.gradients import Gradients
    from kfp_volcano.elastic.runtime.group import Group

__all__ = ["exchanged", "summed"]


def summed(
    gradients: Gradients,
    row: Sequence[float],
    group: Group,
    crew: Crew,
    *,
    flat: bool,
    lengths: bool = False,
    whole: bool = False,
) -> Total | None:
    """Replaces each gradient by its sum, and returns what is known then; None if it failed for one of the crew.

    Args:
        gradients: of this process.
        row: this process' numbers.
        group: all processes of all workers.
        crew: those of this worker.
        flat: whether the gradients are whole in each process.
        lengths: whether lengths are wanted; they are of the workers' gradients where those are sharded.
        whole: whether the length of the sum is wanted.
    """
    size = 1 if flat else crew.size
    rank, world = group.rank // size, group.world // size
    apart = size == 1 or world > 1  # one worker's shards are summed already, and `whole` is what is left to find
    total = gradients.total(row, rank, world, group.add, lengths=lengths and apart, whole=whole)
    if size == 1:
        return total if crew.all(total is not None) else None
    width = len(row)
    numbers = [0.0] * (1 + world * (width + 1) + 1)
    if total is not None:
        parts = total.parts or (0.0,) * world
        numbers = [1.0, *(number for each in total.rows for number in each), *parts, total.whole or 0.0]
    columns = crew.gather(numbers)
    if not all(column[0] for column in columns):
        return None
    starts = [1 + worker * width for worker in range(world)]
    rows = [column[start : start + width] for start in starts for column in columns]
    if total is None or total.whole is None:
        return Total(rows)
    sums = [sum(values) for values in zip(*columns, strict=True)]
    return Total(rows, tuple(sums[1 + world * width : -1]) if total.parts else (), sums[-1])


def exchanged(
    numbers: Sequence[float], group: Group, crew: Crew, *, flat: bool, device: torch.device
) -> list[list[float]] | None:
    """Every process' numbers, by rank, all of the same count; None where that failed for one of the crew."""
    size = 1 if flat else crew.size
    shared = torch.zeros((group.world, len(numbers)), dtype=torch.float32)
    shared[group.rank] = torch.tensor(numbers)
    shared = shared.to(device)
    done = group.add([shared]) if group.world > size else True
    if flat:
        return shared.tolist() if crew.all(done) else None
    columns = crew.gather([float(done), *shared.flatten().tolist()])
    if not all(column[0] for column in columns):
        return None
    flattened = [sum(values) for values in zip(*(column[1:] for column in columns), strict=True)]
    return [flattened[start : start + len(numbers)] for start in range(0, len(flattened), len(numbers))]
