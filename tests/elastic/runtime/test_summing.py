# SPDX-License-Identifier: Apache-2.0
"""Sums over the processes of workers, with siblings that are only told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from kfp_volcano.elastic.runtime.crew import Crew
from kfp_volcano.elastic.runtime.gradients import Gradients
from kfp_volcano.elastic.runtime.group import Solo
from kfp_volcano.elastic.runtime.summing import summed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Pair(Crew):
    """The first of two processes; `sibling` makes what the other sends of what this one sends."""

    def __init__(self, sibling: Callable[[list[float]], list[float]]) -> None:
        super().__init__()
        self.size, self._sibling = 2, sibling

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        return [list(numbers), self._sibling(list(numbers))]

    def any(self, value: bool) -> bool:
        return any(each for [each] in self.gather([float(value)]))

    def all(self, value: bool) -> bool:
        return all(each for [each] in self.gather([float(value)]))

    def from_first(self, make: Callable[[], Any]) -> Any:
        return make()


class Two(Solo):
    """Two workers of two processes, seen from the very first; the others send the same."""

    def __init__(self, crew: Crew) -> None:
        super().__init__(crew)
        self.world = 4

    def add(self, tensors: list[torch.Tensor]) -> bool:
        for tensor in tensors:
            tensor.mul_(2)
        return True


def gradients() -> Gradients:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    return Gradients([parameter])


def test_rows_of_shards_are_put_together_by_rank() -> None:
    """Each process knows the rows of all after the sum, and lengths are added over the shards."""
    crew = Pair(lambda numbers: [numbers[0], *(number + 100 for number in numbers[1:5]), *numbers[5:]])
    total = summed(gradients(), [1.0, 2.0], Two(crew), crew, flat=False, lengths=True)
    assert total is not None
    # The second worker's row is empty, for `Two` invents no rows; what counts is where each of them lies.
    assert total.rows == [[2.0, 4.0], [102.0, 104.0], [0.0, 0.0], [100.0, 100.0]]
    assert total.parts == (100.0, 0.0)
    assert total.whole == pytest.approx(200.0)


@pytest.mark.parametrize("flat", [False, True])
def test_a_sum_counts_only_where_it_succeeded_for_all(flat: bool) -> None:
    """What one process of a worker has and another lacks is done again."""
    crew = Pair(lambda numbers: [0.0 for _ in numbers])
    assert summed(gradients(), [1.0], Two(crew), crew, flat=flat, lengths=False) is None


def test_one_worker_of_shards_sums_nothing() -> None:
    """FSDP has; the rows are told all the same."""
    crew = Pair(lambda numbers: [numbers[0], 7.0, *numbers[2:]])
    total = summed(gradients(), [1.0], Solo(crew), crew, flat=False, lengths=True)
    assert total is not None
    assert (total.rows, total.parts) == ([[1.0], [7.0]], ())
