# SPDX-License-Identifier: Apache-2.0
"""Shares that are fed in parts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.elastic.runtime.noise import NoiseScale
from kfp_volcano.schemas import names
from kfp_volcano.schemas.batch import Batch


def trained(tmp: Any, **settings: Any) -> tuple[torch.Tensor, list[int], list[dict[str, Any]]]:
    """The weights, the sizes of the parts, and the ledger."""
    x = torch.randn(103, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    training = Training(model, optimizer, **{"size": 103, "batch": 25, "epochs": 2, "job_dir": tmp, **settings})
    sizes = []
    for share in training:
        committed = training.step((model(x[share.ids]) ** 2).mean())
        assert committed == share.closes
        assert share.ends_epoch == (share.closes and share.last)
        sizes.append(len(share.ids))
    (ledger,) = tmp.glob("ledger/*.jsonl")
    return model.weight.detach(), sizes, [json.loads(line) for line in ledger.read_text().splitlines()]


def test_parts_come_to_the_same_update(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uneven parts are weighted by their samples: one commit a batch, the same loss, the same weights."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole, _, expected = trained(tmp_path / "whole")
    monkeypatch.setenv(names.ENV_ELASTICITY, json.dumps({"scaling": {"maxPerWorker": 7}}))
    parts, sizes, found = trained(tmp_path / "parts")
    assert sizes == ([7, 6, 6, 6] * 4 + [3]) * 2
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    kinds = ("feed", "commit")
    assert [line["kind"] for line in found if line["kind"] in kinds] == list(kinds) * 10
    assert [line["ids"] for line in found if "ids" in line] == [line["ids"] for line in expected if "ids" in line]
    losses = [[line["loss"] for line in lines if "loss" in line] for lines in (found, expected)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_one_worker_that_trains_in_parts_measures_the_noise() -> None:
    """The first part's gradient against the whole one is enough: here (deviation/mean)^2 samples."""
    generator, scale = np.random.default_rng(0), NoiseScale()
    for _ in range(4000):
        first = (16 + 8 * 4 * generator.standard_normal(100)) / 64
        rest = (48 + 8 * np.sqrt(48) * generator.standard_normal(100)) / 64
        scale.add_first(16, 64, float(first @ first), float((first + rest) @ (first + rest)))
    assert scale.samples == pytest.approx(64.0, rel=0.15)
    before = scale.samples
    scale.add_first(16, 64, float("nan"), 1.0)
    assert scale.samples == before


def test_the_loop_measures_it(tmp_path: Any) -> None:
    """With one worker whose share comes in parts, from lengths it reads now and then."""
    x = torch.randn(4000, 5, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    training = Training(model, optimizer, size=4000, batch=Batch(size=20, max_per_worker=5), epochs=4)
    for share in training:
        training.step(((model(x[share.ids]) - 1) ** 2).mean())
    measured = training._state.noise.samples
    gradients = torch.stack(
        [torch.cat([(2 * (model(row) - 1) * row).detach(), (2 * (model(row) - 1)).detach()]) for row in x]
    )
    mean = gradients.mean(dim=0)
    expected = float(((gradients - mean) ** 2).sum(dim=1).mean() / (mean @ mean))
    assert measured == pytest.approx(expected, rel=0.5)
