# SPDX-License-Identifier: Apache-2.0
"""KV201 to KV206: which samples are fed, and in which order."""
# ruff: noqa: E501 - the lines of the scripts are data

from __future__ import annotations

from typing import Any

import pytest

from kfp_volcano.elastic.checking.checker import check

BY_RANK = [
    "loader = DataLoader(dataset, sampler=DistributedSampler(dataset))\nsampler.set_epoch(0)",
    "sampler = torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=world, rank=rank)\nsampler.set_epoch(0)",
    "mine = range(len(dataset))[rank::world]",
    "ids = list(range(len(dataset)))\nmine = ids[rank::world]",
    "mine = dataset[rank :: dist.get_world_size()]",
    "share = len(dataset) // world\nmine = dataset[rank * share : (rank + 1) * share]",
    "loader = DataLoader(Subset(dataset, range(rank, len(dataset), world)))",
    "mine = [i for i in range(len(dataset)) if i % world == rank]",
    "mine = dataset.shard(num_shards=world, index=rank)",
    "mine = dataset.shard(world, rank)",
    "mine = np.array_split(np.arange(len(dataset)), world)[rank]",
    "mine = dataset.chunk(world)[rank]",
    "n = len(dataset) // world\nmine = Subset(dataset, list(range(rank * n, (rank + 1) * n)))",
    "import json\nconfig = json.loads(os.environ['TF_CONFIG'])\nmine = dataset.shard(len(config['cluster']['worker']), config['task']['index'])",
    "first = args.local_rank\nmine = dataset[first::world]",
    "mine = dataset[int(os.environ['RANK']) :: int(os.environ['WORLD_SIZE'])]",
    "from datasets.distributed import split_dataset_by_node\nmine = split_dataset_by_node(dataset, rank=rank, world_size=world)",
    "from itertools import islice\nmine = islice(dataset, rank, None, world)",
    "n = len(dataset) // world\nfor i in range(0, n, 8):\n    mine = dataset[rank * n + i : rank * n + i + 8]",
    "n = len(dataset) // world\nfor i in range(0, n, 8):\n    low = rank * n + i\n    mine = dataset[low : low + 8]",
    "from accelerate import Accelerator\naccelerator = Accelerator()\nloader = accelerator.prepare(DataLoader(dataset))",
    (
        "for epoch in range(3):\n"
        "    order = torch.randperm(100)\n"
        "    mine = order[rank::world]\n"
        "    for at in range(0, len(mine), 8):\n"
        "        optimizer.step()"
    ),
]


@pytest.mark.parametrize("lines", BY_RANK)
def test_a_dataset_shared_out_by_rank_is_found(restart: Any, lines: str) -> None:
    """By a library's sampler, a slice, a block, a remainder or a split."""
    assert restart(before=lines) == ["KV201"]


def test_a_sampler_of_ones_own_is_found(codes: Any) -> None:
    """The rank is an attribute, the slice in `__iter__`."""
    text = """
        import torch.distributed as dist
        from torch.utils.data import Sampler
        class Mine(Sampler):
            def __init__(self, n):
                self.n, self.rank, self.world = n, dist.get_rank(), dist.get_world_size()
            def __iter__(self):
                order = list(range(self.n))
                return iter(order[self.rank::self.world])
    """
    assert codes(text) == ["KV201"]


def test_a_sampler_in_another_module_is_found_there(codes: Any, tmp_path: Any) -> None:
    """The script hands its rank to a function that it imports."""
    module = "def part(dataset, number, of):\n    return dataset[number::of]\n"
    text = "import torch.distributed as dist\nfrom parts import part\nmine = part(data, dist.get_rank(), dist.get_world_size())\n"
    assert codes(text, parts=module) == ["KV201"]
    (finding,) = check(tmp_path / "train.py").findings
    assert (finding.path, finding.line) == (str(tmp_path / "parts.py"), 2)


BATCHES = [
    "batch = order[samples : samples + GLOBAL_BATCH]\nmine = batch[rank::world]",
    "mine = order[at : at + GLOBAL_BATCH][rank::world]",
    "x = torch.randn(24, generator=torch.Generator().manual_seed(samples))[rank::world]",
    "mine = ids[rank::world]\nfor micro in mine.split(4):\n    model(dataset[micro]).sum().backward()",
    "mine = ids.chunk(world)[rank]",
    "mine = np.array_split(ids, world)[rank]",
    "size = len(ids) // world\nmine = ids[rank * size : (rank + 1) * size]",
    "size = GLOBAL_BATCH // world\nmine = order[at + rank * size : at + (rank + 1) * size]",
    "size = GLOBAL_BATCH // world\nlow = at + size * rank\nmine = order[low : low + size]",
]


@pytest.mark.parametrize("lines", BATCHES)
def test_a_global_batch_shared_out_by_rank_is_right(restart: Any, lines: str) -> None:
    """What is cut at a cursor of committed samples is the same whatever the size."""
    assert restart(lines) == []


def test_a_global_batch_shared_out_in_a_function_is_right(codes: Any) -> None:
    """The function is called in the loop, with what is new in each turn."""
    text = """
        import torch.distributed as dist
        def share(batch):
            return batch[dist.get_rank()::dist.get_world_size()]
        def main(order, step):
            while step < 10:
                step += 1
                mine = share(order[step * 8:step * 8 + 8])
    """
    assert codes(text) == []


@pytest.mark.parametrize(
    "lines",
    [
        "loader = accelerator.skip_first_batches(DataLoader(dataset), 3)",
        "from torchdata.stateful_dataloader import StatefulDataLoader\nloader = StatefulDataLoader(dataset)",
        "from itertools import islice\nfor batch in islice(DataLoader(dataset), done, None):\n    pass",
        "for i, batch in enumerate(DataLoader(dataset)):\n    if i < done:\n        continue",
    ],
)
def test_a_position_counted_by_one_worker_is_found(restart: Any, lines: str) -> None:
    """Batches of a loader are other samples at another size."""
    assert restart(before=lines) == ["KV202"]


UNSEEDED = [
    "loader = DataLoader(dataset, shuffle=True)",
    "train, held_out = torch.utils.data.random_split(dataset, [9, 1])",
    "order = torch.randperm(100)",
    "np.random.shuffle(order)",
    "random.shuffle(order)",
    "order = np.random.permutation(100)",
    "order = np.random.default_rng().permutation(100)",
    "rng = random.Random()\nrng.shuffle(order)",
    "dataset = load_dataset('x').shuffle()",
]
HEAD = "import random\nimport numpy as np\nimport torch\nfrom datasets import load_dataset\nfrom torch.utils.data import DataLoader\n"


@pytest.mark.parametrize("lines", UNSEEDED)
def test_an_order_without_a_seed_is_found(codes: Any, lines: str) -> None:
    """Each library has a generator of its own."""
    assert codes(HEAD + lines) == ["KV203"]


@pytest.mark.parametrize(
    "lines",
    [
        "torch.manual_seed(0)\nloader = DataLoader(dataset, shuffle=True)",
        "loader = DataLoader(dataset, shuffle=True, generator=torch.Generator().manual_seed(1))",
        "order = torch.randperm(100, generator=generator)",
        "np.random.seed(0)\nnp.random.shuffle(order)",
        "random.seed(0)\nrandom.shuffle(order)",
        "order = np.random.default_rng(0).permutation(100)",
        "rng = random.Random(0)\nrng.shuffle(order)",
        "rng.shuffle(order)",
        "dataset = load_dataset('x').shuffle(seed=3)",
        "from lightning import seed_everything\nseed_everything(0)\nnp.random.shuffle(order)",
        "loader = DataLoader(dataset, shuffle=False)",
    ],
)
def test_an_order_with_a_seed_is_right(codes: Any, lines: str) -> None:
    """Seeded globally, by a generator, or not shuffled."""
    assert codes(HEAD + lines) == []


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("training.step(loss)", "from torch.utils.data import DataLoader\nloader = DataLoader(x, shuffle=True)"),
        (
            "training.step(loss)",
            "from torch.utils.data import *\nimport torch.utils.data as d\nl = d.DataLoader(x, sampler=s)",
        ),
        ("batch = next(it)\ntraining.step(loss)", "from torch.utils.data import DataLoader\nit = iter(DataLoader(x))"),
    ],
)
def test_a_loader_beside_training_is_found(live: Any, body: str, before: str) -> None:
    """It has an order of its own."""
    assert live(body, before=before) == ["KV204"]


def test_shares_that_are_not_fed_are_found(codes: Any) -> None:
    """What is fed are batches of something else."""
    text = """
        from kfp_volcano.elastic.runtime import Training
        def main(model, optimizer, batches):
            training = Training(model, optimizer, size=9, batch=8, epochs=1)
            for share in training:
                training.step(model(next(batches)))
    """
    assert codes(text) == ["KV205"]


@pytest.mark.parametrize(
    "loop",
    [
        "for share in training:\n        training.step(model(x[share.ids]))",
        "for number, share in enumerate(training):\n        training.step(model(x[share.ids]))",
        "for share in tqdm(training):\n        training.step(model(batch_of(share)))",
        "for share in training:\n        ids = share.ids\n        training.step(model(x[ids]))",
        "loader = training.loader(x)\n    for batch in loader:\n        training.step(model(batch))",
        "for share, batch in training.loader(x):\n        training.step(model(batch))",
    ],
)
def test_shares_that_are_fed_are_right(codes: Any, loop: str) -> None:
    """Directly, handed on, or as the training's own loader brings them; a loader for evaluation does not matter."""
    head = "from kfp_volcano.elastic.runtime import Training\nfrom torch.utils.data import DataLoader\nfrom tqdm import tqdm\n"
    text = f"{head}def main(model, optimizer, x):\n    test = DataLoader(x)\n    training = Training(model, optimizer, size=9, batch=8, epochs=1)\n    {loop}\n"
    assert codes(text) == []


def test_a_sampler_whose_order_never_changes_is_noted(restart: Any) -> None:
    """Without set_epoch each epoch is the first."""
    assert restart(before="sampler = DistributedSampler(dataset)") == ["KV201", "KV206"]


@pytest.mark.parametrize(
    "lines",
    [
        "mine = order[: len(order) // world + (rank < len(order) % world)]",
        "more = 1 if rank < GLOBAL_BATCH % world else 0",
    ],
)
def test_a_remainder_handed_out_by_rank_is_right(restart: Any, lines: str) -> None:
    """Who takes one sample more is no choice of samples."""
    assert restart(lines) == []


def test_a_rank_is_found_under_any_name(codes: Any) -> None:
    """Names of variables in a tuple, and properties."""
    text = """
        import os
        import torch
        SIZE, PLACE = "WORLD_SIZE", "RANK"
        class Group:
            @property
            def size(self):
                return int(os.environ[SIZE])
            @property
            def place(self):
                return int(os.environ[PLACE])
        def files(names, group):
            return sorted(names)[group.place :: group.size]
    """
    assert codes(text) == ["KV201"]


def test_a_rank_is_followed_through_fields_and_partial(codes: Any) -> None:
    """Of a namespace, and in a loader whose arguments come from elsewhere."""
    text = """
        import os
        import numpy as np
        import torch
        from functools import partial
        from types import SimpleNamespace
        from torch.utils.data import DataLoader, DistributedSampler
        env = SimpleNamespace(me=int(os.environ["RANK"]))
        noise = np.random.default_rng(env.me)
        def loader(dataset, sampler):
            sampler.set_epoch(0)
            make = partial(DataLoader, num_workers=2)
            options = dict(sampler=DistributedSampler(dataset))
            return make(dataset, batch_size=20, **options)
    """
    assert sorted(codes(text)) == ["KV103", "KV201", "KV304"]


@pytest.mark.parametrize(
    "lines",
    [
        "with torch.no_grad():\n    for i in range(rank, 100, world):\n        model(dataset[i])",
        "with torch.inference_mode():\n    model(dataset[rank::world])",
        "val_sampler = DistributedSampler(dataset)\nval_loader = DataLoader(dataset, batch_size=8, sampler=val_sampler)",
        "seen = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset))\nfor x in seen:\n    print(model(x))",
        "@torch.no_grad()\ndef score():\n    return sum(model(dataset[i]) for i in range(rank, 100, world))",
        "def evaluate():\n    return [i for i in range(100) if i % world == rank]",
    ],
)
def test_what_is_evaluated_on_may_be_shared_out_by_rank(restart: Any, lines: str) -> None:
    """Told by gradients that are off, by names, and by loops that compute none."""
    assert restart(before=lines) == []


def test_a_name_alone_makes_no_evaluation(restart: Any) -> None:
    """What trains is trained on."""
    lines = "def test_run():\n    for i in range(rank, 100, world):\n        model(dataset[i]).sum().backward()"
    assert restart(before=lines) == ["KV201"]
