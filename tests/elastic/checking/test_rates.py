# SPDX-License-Identifier: Apache-2.0
"""KV101 to KV106: learning rates, batches, schedules."""
# ruff: noqa: E501 - the lines of the scripts are data

from __future__ import annotations

from typing import Any

import pytest

LAST = [
    "for group in optimizer.param_groups:\n    group['lr'] *= new / old",
    "for g in optimizer.param_groups:\n    g['lr'] = g['lr'] * 2",
    "optimizer.param_groups[0]['lr'] /= 2",
    "lr = lr * new_workers / old_workers",
    "lr *= new / old",
    "current = optimizer.param_groups[0]['lr']\nfor g in optimizer.param_groups:\n    g['lr'] = current * new / old",
    "rate = scheduler.get_last_lr()[0] * ratio\nfor g in optimizer.param_groups:\n    g['lr'] = rate",
    "self.learning_rate = self.learning_rate * (new / old)",
    "self.lr *= new / old",
    "ratio = new / old\nlr = lr * ratio",
    "for group in optimizer.param_groups:\n    group.update(lr=group['lr'] * new / old)",
    "optimizer.learning_rate.assign(optimizer.learning_rate * new / old)",
    "set_lr(optimizer, optimizer.param_groups[0]['lr'] * new / old)",
]


@pytest.mark.parametrize("lines", LAST)
def test_a_rate_computed_from_its_last_value_is_found(codes: Any, lines: str) -> None:
    """However it is spelled, in a function that is called on a resize."""
    body = "\n".join(f"    {line}" for line in lines.splitlines())
    text = f"def set_lr(optimizer, lr):\n    for g in optimizer.param_groups:\n        g['lr'] = lr\n\ndef on_resize(self, optimizer, scheduler, lr, old, new, old_workers, new_workers):\n{body}\n"
    assert codes(text) == ["KV101"]


def test_a_rate_that_decays_in_a_variable_is_found(restart: Any) -> None:
    """A restart begins with the base value again, whatever the loop has made of it."""
    assert restart("lr = lr * 0.99", before="lr = 0.1") == ["KV101"]


BASE = [
    "for g in optimizer.param_groups:\n    g['lr'] = base_lr * new / base_workers",
    "for g, base in zip(optimizer.param_groups, base_lrs):\n    g['lr'] = base * 0.5 ** (samples // 1000)",
    "lr = base_lr * math.sqrt(batch / base_batch)",
    "for g, saved in zip(optimizer.param_groups, checkpoint):\n    g['lr'] = saved['lr']",
    "log(lr=optimizer.param_groups[0]['lr'])",
    "before = optimizer.param_groups[0]['lr']",
]


@pytest.mark.parametrize("lines", BASE)
def test_a_rate_from_its_base_value_is_right(codes: Any, lines: str) -> None:
    """From base values, restored, or only read."""
    body = "\n".join(f"    {line}" for line in lines.splitlines())
    head = "import math\n\ndef on_resize(optimizer, checkpoint, base_lr, base_lrs, samples, batch, base_batch, new, base_workers):\n"
    assert codes(head + body) == []


BY_SIZE = [
    "lr = 0.1 * world",
    "lr = 0.1 * dist.get_world_size()",
    "learning_rate = 0.1 * math.sqrt(world)",
    "base_lr = 0.1 * int(os.environ['WORLD_SIZE']) / 8",
    "args.lr = args.lr * world",
    "args.lr *= world",
    "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 * world)",
    "optimizer = torch.optim.SGD(model.parameters(), 1e-3 * world, momentum=0.9)",
    "scale = world / 4\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 * scale)",
    "warmup_steps = 500 * world",
    "import tensorflow as tf\noptimizer = tf.keras.optimizers.SGD(0.01 * world)",
    "warmup = 2000 // world",
    "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step * world / 1000))",
]


@pytest.mark.parametrize("lines", BY_SIZE)
def test_a_rate_or_warm_up_by_the_size_is_found(restart: Any, lines: str) -> None:
    """Whichever way the number of workers comes in."""
    assert "KV102" in restart(before=lines)


@pytest.mark.parametrize(
    "size",
    [
        "int(os.environ['WORLD_SIZE'])",
        "int(os.environ.get('WORLD_SIZE', '1'))",
        "int(os.getenv('WORLD_SIZE', 1))",
        "dist.get_world_size()",
        "torch.cuda.device_count()",
        "Accelerator().num_processes",
        "hvd.size()",
        "args.world_size",
        "trainer.world_size",
        "settings.workers",
        "world()",
        "sizes['world_size']",
    ],
)
def test_the_batch_by_the_size_is_found_wherever_the_size_comes_from(codes: Any, size: str) -> None:
    """Environment, group, library, arguments, a function or an attribute of one's own."""
    text = f"""
        import os
        import torch
        import torch.distributed as dist
        import horovod.torch as hvd
        from accelerate import Accelerator
        class Settings:
            def __init__(self):
                self.workers = int(os.environ["WORLD_SIZE"])
        def world():
            return dist.get_world_size() if dist.is_initialized() else 1
        def main(args, trainer, settings, sizes):
            batch_size = 32 * {size}
            return batch_size
    """
    assert codes(text) == ["KV103"]


@pytest.mark.parametrize(
    "lines",
    [
        "loader = DataLoader(dataset, batch_size=32 * world)",
        "loader = DataLoader(dataset, 32 * world)",
        "global_batch_size = per_device * world",
        "examples_per_step = per_device * world",
        "batch = 32\nbatch *= world",
        "n = world\nwith_all = n * 16\nloader = DataLoader(dataset, batch_size=with_all)",
    ],
)
def test_the_batch_by_the_size_is_found_however_it_is_used(restart: Any, lines: str) -> None:
    """As an argument, under another name, in place."""
    assert "KV103" in restart(before="per_device = 8\n" + lines)


def test_the_batch_of_training_never_follows_the_size(codes: Any, live: Any) -> None:
    """Even divided: what Training is given is the global batch."""
    assert "KV103" in live(before="batch = 512 // int(os.environ['WORLD_SIZE'])")
    text = """
        from kfp_volcano.elastic.runtime import Training
        import os
        def main(model, optimizer, x):
            training = Training(model, optimizer, size=9, batch=8 * int(os.environ["WORLD_SIZE"]), epochs=1)
            for share in training:
                training.step(model(x[share.ids]))
    """
    assert set(codes(text)) == {"KV103", "KV502"}


def test_a_global_batch_that_is_divided_is_right(restart: Any) -> None:
    """With what does not divide dealt with there is nothing to say; else a note."""
    assert restart(before="batch_size = GLOBAL_BATCH // world") == ["KV106"]
    assert restart(before="assert GLOBAL_BATCH % world == 0\nbatch_size = GLOBAL_BATCH // world") == []
    assert restart(before="each, rest = divmod(GLOBAL_BATCH, world)\nbatch_size = each + (rank < rest)") == []


def test_a_schedule_that_counts_steps_is_found(live: Any, restart: Any) -> None:
    """Beside Training always, unless it is the training's state and counts what counts."""
    made = "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)"
    assert live("training.step(loss)\nscheduler.step()", before=made) == ["KV104"]
    assert live("if training.step(loss):\n    scheduler.step()", before=made) == ["KV104"]
    assert live("training.step(loss)\nif share.ends_epoch:\n    scheduler.step()", before=made) == ["KV104"]
    assert restart("scheduler.step()", before=made) == ["KV305", "KV104"]  # nor is it in the checkpoint


def test_a_schedule_that_is_the_trainings_state_is_right(codes: Any) -> None:
    """In `state=`, and stepped where the step counts."""
    text = """
        import torch
        from kfp_volcano.elastic.runtime import Training
        def main(model, optimizer, x):
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
            training = Training(model, optimizer, size=9, batch=8, epochs=1, state={"scheduler": scheduler})
            for share in training:
                if training.step(model(x[share.ids])):
                    scheduler.step()
    """
    assert codes(text) == []


def test_steps_counted_by_a_loader_are_found(restart: Any) -> None:
    """The length of one worker's loader follows the size; the length of an average does not matter."""
    made = "loader = DataLoader(dataset, batch_size=8)\n"
    assert "KV105" in restart(before=made + "total_steps = 10 * len(loader)")
    assert "KV105" in restart(
        before=made + "s = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=len(loader) * 3)"
    )
    assert "KV105" in restart(before="loader = DataLoader(dataset, batch_size=8, drop_last=True)")
    assert "KV105" in restart(before="steps_per_epoch = len(dataset) // (8 * world)")
    assert restart(before=made + "average = total / len(loader)") == []
    assert restart(before="total_steps = 10 * len(dataset) // GLOBAL_BATCH") == []
