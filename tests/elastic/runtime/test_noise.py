# SPDX-License-Identifier: Apache-2.0
"""The gradient noise scale, from lengths alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from kfp_volcano.elastic.runtime.gradients import Gradients
from kfp_volcano.elastic.runtime.noise import NoiseScale


def gradients(generator: np.random.Generator, counts: list[int], mean: float, deviation: float) -> list[np.ndarray]:
    """Each worker's part of a step's gradient: its samples' sum over the batch's size, 100 parameters."""
    total = sum(counts)
    return [(mean * count + deviation * np.sqrt(count) * generator.standard_normal(100)) / total for count in counts]


@pytest.mark.parametrize("counts", [[32, 32], [16, 16, 16, 16], [10, 20, 34], [64, 0, 32]])
def test_the_noise_scale_is_that_of_the_samples(counts: list[int]) -> None:
    """trace of the covariance over the squared mean: here (deviation/mean)^2, however the batch is shared out."""
    generator, scale = np.random.default_rng(0), NoiseScale()
    for _ in range(2000):
        parts = gradients(generator, counts, mean=1.0, deviation=8.0)
        scale.add(counts, [float(part @ part) for part in parts], float(sum(parts) @ sum(parts)))
    assert scale.samples == pytest.approx(64.0, rel=0.15)


def test_one_worker_tells_nothing_and_takes_nothing_back() -> None:
    """What several workers had found stays; nothing is known where there never were several, nor of rubbish."""
    alone, several = NoiseScale(), NoiseScale()
    for _ in range(100):
        alone.add([64], [1.0], 1.0)
        several.add([32, 32], [0.5, 0.5], 1.2)
        several.add([32, 32], [float("nan"), 0.5], float("inf"))
    assert alone.samples is None
    found = several.samples
    assert found is not None
    several.add([64], [5.0], 5.0)
    assert several.samples == found
    newcomer = NoiseScale()
    newcomer.load_state_dict(json.loads(json.dumps(several.state_dict())))
    assert newcomer.samples == found


def test_nothing_is_told_before_enough_was_seen() -> None:
    """Nor where the mean is lost in the noise."""
    scale = NoiseScale()
    scale.add([32, 32], [0.5, 0.5], 1.2)
    assert scale.samples is None
    for _ in range(100):
        scale.add([32, 32], [1.0, 1.0], 0.5)
    assert scale.samples is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_lengths_travel_with_the_sum(dtype: torch.dtype) -> None:
    """Each worker's squared length and that of the sum, of all dtypes together, beside rows that stay as they were."""
    workers = [[torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(2, dtype=dtype))] for _ in range(2)]
    for rank, (first, second) in enumerate(workers):
        first.grad = torch.full((3,), float(rank + 1))
        second.grad = torch.full((2,), 2.0, dtype=dtype) if rank else None
    sent: list[list[torch.Tensor]] = []

    def keep(tensors: list[torch.Tensor]) -> bool:
        sent.append([tensor.clone() for tensor in tensors])
        return False

    def add(tensors: list[torch.Tensor]) -> bool:
        for tensor, other in zip(tensors, sent[0], strict=True):
            tensor.add_(other)
        return True

    assert Gradients(workers[0]).total([7.0], 0, 2, keep, lengths=True) is None
    total = Gradients(workers[1]).total([8.0], 1, 2, add, lengths=True)
    assert total is not None
    assert total.rows == [[7.0], [8.0]]
    assert total.parts == pytest.approx((3.0, 12.0 + 8.0))
    assert total.whole == pytest.approx(27.0 + 8.0)
    assert workers[1][0].grad is not None
    assert workers[1][0].grad.tolist() == [3.0, 3.0, 3.0]
