# SPDX-License-Identifier: Apache-2.0
"""KV301 to KV306: checkpoints and seeds."""
# ruff: noqa: E501 - the lines of the scripts are data

from __future__ import annotations

from typing import Any

import pytest

HEAD = """
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.optim import ZeroRedundancyOptimizer
from pathlib import Path
import deepspeed
import os
"""

SHARDED = [
    "model = FSDP(net)\nif dist.get_rank() == 0:\n    torch.save(model.state_dict(), 'm.pt')",
    "fully_shard(net)\nif rank == 0:\n    torch.save(net.state_dict(), 'm.pt')",
    "model = fully_shard(net)\nmain = rank == 0\nif main:\n    torch.save({'model': model.state_dict()}, 'm.pt')",
    "model = FSDP(net)\nif not rank:\n    state = model.state_dict()\n    torch.save(state, 'm.pt')",
    "model = FSDP(net)\nif rank != 0:\n    return\ntorch.save(model.state_dict(), 'm.pt')",
    "model = FSDP(net)\nsave(model, rank)",
    "model = FSDP(net)\nif rank == 0:\n    dcp.save({'model': model.state_dict()}, checkpoint_id='m')",
    "optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam)\nif rank == 0:\n    torch.save(optimizer.state_dict(), 'o.pt')",
    "engine, optimizer, _, _ = deepspeed.initialize(model=net)\nif rank == 0:\n    engine.save_checkpoint('m')",
    "model = FSDP(net)\nif int(os.environ['RANK']) == 0:\n    torch.save(get_model_state_dict(model), 'm.pt')",
    "model = FSDP(net)\nwrapped(model)",
    "model = FSDP(net)\nby_library(model)",
    "fully_shard(net)\nstate = net.state_dict()\nif rank == 0:\n    torch.save(state, 'm.pt')",
]
DEFINED = """
def save(model, rank):
    if rank == 0:
        torch.save(model.state_dict(), 'm.pt')

def first_only(function):
    def inner(*args):
        if int(os.environ.get('RANK', 0)) == 0:
            return function(*args)
    return inner

@first_only
def wrapped(model):
    torch.save(model.state_dict(), 'm.pt')

@lightning.pytorch.utilities.rank_zero_only
def by_library(model):
    torch.save(model.state_dict(), 'm.pt')
"""


def _function(lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines.splitlines())
    return f"{HEAD}{DEFINED}\ndef main(net, rank):\n{body}\n"


@pytest.mark.parametrize("lines", SHARDED)
def test_a_sharded_state_saved_by_one_rank_is_found(codes: Any, lines: str) -> None:
    """Whatever shards it, and however the first rank is told from the others."""
    assert set(codes(_function(lines))) == {"KV301"}


WHOLE = [
    "model = torch.nn.parallel.DistributedDataParallel(net)\nif rank == 0:\n    torch.save(model.state_dict(), 'm.pt')",
    "model = FSDP(net)\ndcp.save({'model': model.state_dict()}, checkpoint_id='m')",
    "model = FSDP(net)\nstate = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))\nif rank == 0:\n    torch.save(state, 'm.pt')",
    "model = FSDP(net)\nwith FSDP.state_dict_type(model, FULL):\n    state = model.state_dict()\nif rank == 0:\n    torch.save(state, 'm.pt')",
    "optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam)\noptimizer.consolidate_state_dict(to=0)\nif rank == 0:\n    torch.save(optimizer.state_dict(), 'o.pt')",
    "engine, optimizer, _, _ = deepspeed.initialize(model=net)\nengine.save_checkpoint('m')",
    "model = FSDP(net)\ntorch.save(model.state_dict(), f'm-{rank}.pt')",
]


@pytest.mark.parametrize("lines", WHOLE)
def test_a_state_that_is_whole_or_saved_by_all_is_right(codes: Any, lines: str) -> None:
    """Gathered on all ranks before the first one writes, or written by all."""
    assert codes(_function(lines)) == []


IN_PLACE = [
    "torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'samples': samples}, path)",
    "with open('checkpoint.pt', 'wb') as f:\n    torch.save({'optimizer': optimizer.state_dict(), 'samples': samples}, f)",
    "with path.open('wb') as file:\n    pickle.dump(samples, file)",
    "np.savez('checkpoint.npz', weight=weight)",
    "state = {'optimizer': optimizer.state_dict(), 'step': samples}\ntorch.save(state, args.checkpoint)",
]


@pytest.mark.parametrize("lines", IN_PLACE)
def test_a_checkpoint_written_over_the_last_is_found(restart: Any, lines: str) -> None:
    """By any library, to a path or a file that was opened."""
    assert restart(lines, before="import pickle") == ["KV302", "KV307"]


@pytest.mark.parametrize(
    "lines",
    [
        "save({'optimizer': optimizer.state_dict(), 'samples': samples}, path)",
        "torch.save({'samples': samples}, f'checkpoint-{samples}.pt')",
        "torch.save({'samples': samples}, folder / f'step-{samples:06d}.pt')",
        "torch.save({'samples': samples}, 'c-{}.pt'.format(samples))",
        "temporary = str(path) + '.tmp'\ntorch.save({'samples': samples}, temporary)\nos.replace(temporary, path)",
        "buffer = io.BytesIO()\ntorch.save({'samples': samples}, buffer)",
    ],
)
def test_a_checkpoint_that_is_whole_or_not_there_is_right(restart: Any, lines: str) -> None:
    """Renamed into place, under a name of its own, or not a file at all."""
    assert "KV302" not in restart(lines, before="import io")


def test_the_final_model_may_be_written_in_place(restart: Any, live: Any) -> None:
    """After the loop there is no last one to write over."""
    assert restart(after="    torch.save(model.state_dict(), 'final.pt')") == []
    assert live(after="torch.save(model.state_dict(), 'final.pt')") == []


@pytest.mark.parametrize(
    "made",
    [
        "nn.Linear(8, 1)",
        "nn.Sequential(nn.Flatten(), nn.Linear(8, 1))",
        "Net()",
        "torchvision.models.vit_b_16()",
        "nn.Parameter(torch.randn(8))",
        "timm.create_model('vit_tiny_patch16_224')",
    ],
)
def test_random_weights_without_a_seed_are_found(codes: Any, made: str) -> None:
    """In a network of one's own, a layer, a ready-made one, a parameter."""
    text = f"import torch\nimport timm\nimport torchvision\nfrom torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        self.a = nn.Linear(1, 1)\n\nmodel = {made}\n"
    assert codes(text) == ["KV303"]
    assert codes(text.replace("\nmodel", "\ntorch.manual_seed(3)\nmodel")) == []
    assert codes(text + "torch.manual_seed(3)\n") == ["KV303"]


@pytest.mark.parametrize(
    "text",
    [
        "import lightning as L\nL.seed_everything(1)\nfrom torch import nn\nmodel = nn.Linear(1, 1)",
        "from transformers import set_seed\nset_seed(1)\nfrom torch import nn\nmodel = nn.Linear(1, 1)",
        "import torch\nfrom transformers import AutoModel\nmodel = AutoModel.from_pretrained('x')",
        "import torch\nfrom torchvision.models import vit_b_16\nmodel = vit_b_16(weights='DEFAULT')",
        "import torch\nweight = torch.zeros(3)",
        "from torch import manual_seed\nfrom torch import nn\ndef seed(n):\n    manual_seed(n)\nseed(1)\nmodel = nn.Linear(1, 1)",
    ],
)
def test_weights_that_are_seeded_or_given_are_right(codes: Any, text: str) -> None:
    """Seeded by a library, read from a file, or not random."""
    assert codes(text) == []


@pytest.mark.parametrize(
    "lines",
    [
        "torch.manual_seed(1 + rank)",
        "torch.manual_seed(args.seed + args.local_rank)",
        "np.random.seed(dist.get_rank())",
        "random.seed(os.getpid())",
        "rng = np.random.default_rng([1, rank])",
        "generator = torch.Generator().manual_seed(seed * world + rank)",
        "from accelerate.utils import set_seed\nset_seed(1, device_specific=True)",
        "offset = rank * 1000\ntorch.cuda.manual_seed_all(offset)",
        "import lightning as L\nL.seed_everything(7 + int(os.environ['RANK']))",
    ],
)
def test_a_seed_by_rank_is_found(restart: Any, lines: str) -> None:
    """For any generator."""
    assert restart(before=lines) == ["KV304"]


def test_a_seed_by_step_or_argument_is_right(restart: Any) -> None:
    """What is the same on all workers."""
    assert restart("generator = torch.Generator().manual_seed(samples)", before="np.random.seed(args.seed)") == []


def test_a_checkpoint_that_lacks_something_is_found(codes: Any) -> None:
    """The optimizer's moments, the schedule, the position."""
    text = """
        import os
        import torch
        from pathlib import Path
        torch.manual_seed(0)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.Adam(model.parameters())
        if Path("c.pt").exists():
            model.load_state_dict(torch.load("c.pt"))
        for batch in batches:
            model(batch).backward()
            optimizer.step()
            at += len(batch)
            if batch is last:
                torch.save(WHAT, "c.tmp")
                os.replace("c.tmp", "c.pt")
    """
    whole = '{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}'
    assert codes(text.replace("WHAT", "model.state_dict()")) == ["KV305"]
    assert codes(text.replace("WHAT", '{"model": model.state_dict(), "step": 1}')) == ["KV305"]
    assert codes(text.replace("WHAT", '{"model": model.state_dict(), "optimizer": optimizer.state_dict()}')) == [
        "KV305"
    ]
    assert codes(text.replace("WHAT", whole)) == []
    turns = text.replace("for batch in batches", "for n, batch in enumerate(batches)")
    assert codes(turns.replace("WHAT", whole.replace('"step": 1', '"done": n + 1'))) == []
    assert codes(text.replace("WHAT", whole.replace('"step": 1', '"reached": at'))) == []
    assert codes(text.replace("WHAT", whole.replace('"step": 1', '"feed": feed.state_dict()'))) == []
    assert codes(text.replace("WHAT", whole.replace('"step": 1', '"scaler": scaler.state_dict()'))) == ["KV305"]
    assert codes(text.replace("WHAT", whole.replace('"step": 1', '"lr": 0.1'))) == ["KV305"]


def test_training_that_is_never_taken_up_is_found(codes: Any) -> None:
    """A restart begins at step 0."""
    text = """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(1, 1)
        for batch in batches:
            model(batch).backward()
    """
    assert codes(text) == ["KV306"]
    assert codes(text + "        model.load_state_dict(torch.load('c.pt'))") == []
