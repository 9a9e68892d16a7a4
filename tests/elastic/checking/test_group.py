# SPDX-License-Identifier: Apache-2.0
"""KV501 and KV503: collectives, and what the Job decides."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    "lines",
    [
        "if rank == 0:\n    dist.barrier()",
        "if dist.get_rank() == 0:\n    dist.all_reduce(loss)",
        "main = rank == 0\nif main and at % 10 == 0:\n    dist.broadcast(loss, 0)",
        "if int(os.environ['RANK']) == 0:\n    dist.all_gather_object([], 1)",
        "if rank != 0:\n    continue\ndist.barrier()",
        "log(rank, loss)",
        "rank == 0 and dist.barrier()",
        "if accelerator.is_main_process:\n    accelerator.wait_for_everyone()",
    ],
)
def test_a_collective_on_some_ranks_is_found(restart: Any, lines: str) -> None:
    """Under a condition on the rank, behind a guard, or in a function."""
    after = "def log(rank, loss):\n    if rank == 0:\n        dist.all_reduce(loss)\n"
    assert restart(lines, after=after if "log(" in lines else "") == ["KV501"]


@pytest.mark.parametrize(
    "lines",
    [
        "dist.barrier()\nif rank == 0:\n    print('all here')",
        "if rank == 0:\n    dist.broadcast(loss, 0)\nelse:\n    dist.broadcast(other, 0)",
        "if rank != 0:\n    dist.barrier()\ndownload()\nif rank == 0:\n    dist.barrier()",
        "if world > 1:\n    dist.all_reduce(loss)",
        "if rank in members:\n    dist.all_reduce(loss, group=members_group)",
        "if at % 10 == 0:\n    dist.barrier()",
        "if rank == 0:\n    total = functools.reduce(add, [])\n    x = loss.gather(0, ids)",
    ],
)
def test_a_collective_on_all_ranks_is_right(restart: Any, lines: str) -> None:
    """On one branch each, in a group of their own, or under what all know."""
    assert restart(lines, before="import functools") == []


@pytest.mark.parametrize(
    "lines",
    [
        "dist.init_process_group('gloo', world_size=4, rank=rank)",
        "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=4)",
        "WORLD = 4\ndist.init_process_group('gloo', world_size=WORLD)",
        "world_size = 8",
        "os.environ['MASTER_PORT'] = '29500'",
        "os.environ['WORLD_SIZE'] = '4'",
        "dist.init_process_group('gloo', init_method='tcp://10.1.1.1:23456')",
        "torch.cuda.set_device(0)",
        "device = torch.device('cuda:0')",
        "model = model.to('cuda:1')",
        "DEVICE = 'cuda:0'",
        "model.cuda(0)",
        "device = torch.device('cuda', 0)",
    ],
)
def test_what_the_job_decides_is_found_when_it_is_written_down(restart: Any, lines: str) -> None:
    """Numbers of workers, ports, devices."""
    assert restart(before=lines) == ["KV503"]


@pytest.mark.parametrize(
    "lines",
    [
        "dist.init_process_group('gloo', world_size=world, rank=rank)",
        "os.environ.setdefault('MASTER_PORT', '29500')",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
        "device = torch.device('cuda', int(os.environ['LOCAL_RANK']))",
        "device = torch.device(f'cuda:{args.local_rank}')",
        "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        "world_size = 1",
        "loader = DataLoader(dataset, num_workers=4)",
    ],
)
def test_what_comes_from_the_environment_is_right(restart: Any, lines: str) -> None:
    """And so are defaults for one process alone."""
    assert restart(before=lines) == []
