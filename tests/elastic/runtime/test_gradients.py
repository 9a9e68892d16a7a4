# SPDX-License-Identifier: Apache-2.0
"""Sums of gradients over workers, by workers that are only numbers here."""

from __future__ import annotations

import torch

from kfp_volcano.elastic.runtime.gradients import Gradients, Total


def test_sums_are_those_of_all_workers_and_unused_parameters_stay_unused() -> None:
    """A parameter used by one worker counts for all, one used by none for none, whatever the dtypes."""
    shapes: list[tuple[tuple[int, ...], torch.dtype]] = [
        ((2, 3), torch.float32),
        ((4,), torch.float64),
        ((5,), torch.float32),
        ((1,), torch.float32),
    ]
    workers = [[torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape, dtype in shapes] for _ in range(2)]
    for rank, parameters in enumerate(workers):
        for parameter in parameters[:2]:
            parameter.grad = torch.full_like(parameter, rank + 1)
    workers[1][2].grad = torch.ones(5)
    sent: list[list[torch.Tensor]] = []

    def keep(tensors: list[torch.Tensor]) -> bool:
        sent.append([tensor.clone() for tensor in tensors])
        return False

    first, second = (Gradients(parameters) for parameters in workers)
    assert first.total([1.0, 2.0], 0, 2, keep) is None

    def add(tensors: list[torch.Tensor]) -> bool:
        for tensor, other in zip(tensors, sent[0], strict=True):
            tensor.add_(other)
        return True

    total = second.total([3.0, 4.0], 1, 2, add)
    assert total == Total([[1.0, 2.0], [3.0, 4.0]])
    sums = [parameter.grad for parameter in workers[1]]
    assert sums[0] is not None
    assert sums[0].equal(torch.full((2, 3), 3.0))
    assert sums[1] is not None
    assert sums[1].equal(torch.full((4,), 3.0, dtype=torch.float64))
    assert sums[2] is not None
    assert sums[2].equal(torch.ones(5))
    assert sums[3] is None


def test_one_worker_keeps_its_gradients_as_they_are() -> None:
    """Nothing is copied, and nothing sent."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    parameter.grad = gradient = torch.ones(3)

    def refuse(_: list[torch.Tensor]) -> bool:
        raise AssertionError

    assert Gradients([parameter]).total([1.0], 0, 1, refuse, lengths=True) == Total([[1.0]], whole=3.0)
    assert parameter.grad is gradient
