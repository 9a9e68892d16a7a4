# SPDX-License-Identifier: Apache-2.0
"""Which models are taken for sharded, and which are refused; without any other process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

from kfp_volcano.elastic.runtime import shards, worker_mesh
from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.distributed.device_mesh import DeviceMesh


@pytest.fixture(name="mesh")
def _mesh() -> Iterator[DeviceMesh]:
    yield worker_mesh()
    distributed.destroy_process_group()


def layers() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))


def adam(model: torch.nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=0.1)


def test_a_state_comes_back_from_its_parts_and_from_its_whole(mesh: DeviceMesh) -> None:
    """Model and optimizer of shards take over both forms, and so does a model without shards the whole."""
    torch.manual_seed(0)
    model = fully_shard(layers(), mesh=mesh)
    optimizer = adam(model)
    assert shards.sharded(model, optimizer, 1)
    model(torch.ones(5, 4)).sum().backward()
    optimizer.step()
    whole, part = (
        [form(each.state_dict()) for each in (model, optimizer)] for form in (shards.to_whole, shards.to_local)
    )
    for given, taker in (
        (whole, fully_shard(layers(), mesh=mesh)),
        (part, fully_shard(layers(), mesh=mesh)),
        (whole, layers()),
    ):
        other = adam(taker)
        values, state = shards.fitted(*given, taker, other)
        taker.load_state_dict(values)
        other.load_state_dict(state)
        found = [shards.to_whole(each.state_dict()) for each in (taker, other)]
        torch.testing.assert_close(found, whole, rtol=0, atol=0)


def test_a_plain_model_is_not_sharded() -> None:
    """Its gradients are whole in each process, however many there are."""
    model = layers()
    assert not shards.sharded(model, adam(model), 4)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_model_sharded_in_part_or_over_others_is_refused(mesh: DeviceMesh, processes: int) -> None:
    """It is told what to do, before any step."""
    model: Any = layers()
    fully_shard(model[0] if processes == 1 else model, mesh=mesh)
    with pytest.raises(SpecError, match="worker_mesh"):
        shards.sharded(model, adam(model), processes)


def test_a_model_that_sums_by_itself_is_refused(mesh: DeviceMesh) -> None:
    """DistributedDataParallel would have each gradient counted twice."""
    assert mesh.size() == 1
    model = torch.nn.parallel.DistributedDataParallel(layers())
    with pytest.raises(SpecError, match="DistributedDataParallel"):
        shards.sharded(model, adam(model), 1)
