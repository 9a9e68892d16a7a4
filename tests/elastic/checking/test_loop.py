# SPDX-License-Identifier: Apache-2.0
"""KV502, KV504 to KV507, KV601 and KV602: the body of a loop over shares, and the network."""
# ruff: noqa: E501 - the lines of the scripts are data

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    "lines",
    [
        "world = int(os.environ['WORLD_SIZE'])",
        "rank = int(os.environ.get('RANK', 0))",
        "import torch.distributed as dist\nrank = dist.get_rank()",
        "index = os.getenv('KFP_VOLCANO_TASK_INDEX')",
    ],
)
def test_a_rank_or_size_read_once_is_found(live: Any, lines: str) -> None:
    """It is another a moment later."""
    assert live(before=lines) == ["KV502"]


def test_what_training_says_is_right_when_it_is_asked_each_time(codes: Any, live: Any) -> None:
    """In the loop; kept from before the loop it is as old as any other."""
    assert (
        live("training.step(loss)\nif share.ends_epoch and training.first:\n    training.log(workers=training.workers)")
        == []
    )
    assert live("training.step(loss)\nfirst = training.first") == []
    text = """
        from kfp_volcano.elastic.runtime import Training
        def main(model, optimizer, x):
            training = Training(model, optimizer, size=9, batch=8, epochs=1)
            first = training.first
            for share in training:
                training.step(model(x[share.ids]))
    """
    assert codes(text) == ["KV502"]


@pytest.mark.parametrize(
    "body",
    [
        "loss.backward()\ntraining.step(loss)",
        "training.step(loss)\noptimizer.step()",
        "loss.backward()\noptimizer.step()\ntraining.step(loss)",
        "scaler.scale(loss).backward()\ntraining.step(loss)",
        "scaler.step(optimizer)\ntraining.step(loss)",
        "torch.autograd.backward(loss)\ntraining.step(loss)",
    ],
)
def test_a_step_beside_training_is_found(live: Any, body: str) -> None:
    """Backward or update, with a scaler too."""
    assert set(live(body)) == {"KV504"}


@pytest.mark.parametrize(
    "body",
    [
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\ntraining.step(loss)",
        "training.step(loss)\ntorch.nn.utils.clip_grad_value_(model.parameters(), 1.0)",
    ],
)
def test_clipping_before_the_sum_is_found(live: Any, body: str) -> None:
    """In the loop there is only one worker's part."""
    assert live(body) == ["KV505"]


def test_clipping_the_sum_is_right(live: Any, restart: Any) -> None:
    """In the optimizer's hook, and after DDP's backward."""
    hook = (
        "def clip(*_):\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.register_step_pre_hook(clip)"
    )
    assert live(before=hook) == []
    assert (
        live(before="optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), 1.0))")
        == []
    )
    assert restart("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)") == []


def test_clipping_before_an_all_reduce_by_hand_is_found(restart: Any) -> None:
    """And after it, it is right."""
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    total = "for p in model.parameters():\n    dist.all_reduce(p.grad)\n"
    assert restart(clip + total) == ["KV505"]
    assert restart(total + clip) == []


@pytest.mark.parametrize(
    "body",
    [
        "training.step(loss)\nlosses.append(loss.item())",
        "total += loss.item()\ntraining.step(loss)",
        "training.step(loss)\nsteps += 1",
        "writer.add_scalar('loss', loss.item(), training.steps)\ntraining.step(loss)",
        "history['loss'].append(float(loss))\ntraining.step(loss)",
    ],
)
def test_what_counts_attempts_is_found(live: Any, body: str) -> None:
    """The body runs again with a step that is done again."""
    assert live(body, before="losses, total, steps, history = [], 0, 0, {'loss': []}") == ["KV506"]


@pytest.mark.parametrize(
    "body",
    [
        "if training.step(loss):\n    losses.append(loss.item())",
        "counts = training.step(loss)\nif counts:\n    total += loss.item()",
        "training.step(loss)\nif share.committed:\n    losses.append(loss.item())",
        "training.step(loss)\nif share.ends_epoch:\n    losses.append(loss.item())",
        "training.step(loss)\nif not share.committed:\n    continue\nlosses.append(loss.item())",
        "if not training.step(loss):\n    continue\ntotal += loss.item()",
        "parts = []\nfor each in share.ids:\n    parts.append(each)\ntraining.step(loss)",
        "part = 0\npart += 1\ntraining.step(loss)",
        "training.step(loss)\npbar.update(len(share.ids))",
    ],
)
def test_what_counts_steps_is_right(live: Any, body: str) -> None:
    """Under the step's result, or new in each turn."""
    assert live(body, before="losses, total = [], 0") == []


def test_an_evaluation_by_all_is_noted(live: Any) -> None:
    """By the first it is right."""
    defined = "def evaluate():\n    return 1.0"
    assert live("training.step(loss)\nif share.ends_epoch:\n    evaluate()", before=defined) == ["KV507"]
    assert live("training.step(loss)\nif share.ends_epoch and training.first:\n    evaluate()", before=defined) == []


@pytest.mark.parametrize(
    "made",
    [
        "nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))",
        "nn.Sequential(nn.LazyBatchNorm2d())",
        "torchvision.models.resnet18()",
        "torchvision.models.get_model('mobilenet_v3_small')",
        "models.resnet50(num_classes=10)",
        "resnet18(weights=None)",
        "timm.create_model('efficientnet_b0')",
        "torch.hub.load('pytorch/vision', 'densenet121')",
        "nn.SyncBatchNorm(8)",
        "make(nn.BatchNorm2d)",
        "models.__dict__['resnet18']()",
        "models.__dict__[args.arch]()",
    ],
)
def test_batch_norm_is_found(codes: Any, made: str) -> None:
    """As a layer, as an argument, and in ready-made networks."""
    text = f"import torch, torchvision, timm\nparser.add_argument('-a', '--arch', default='resnet18')\nfrom torchvision import models\nfrom torchvision.models import resnet18\nfrom torch import nn\ntorch.manual_seed(0)\nmodel = {made}\n"
    assert codes(text, live=True) == ["KV601"]


@pytest.mark.parametrize(
    "made",
    [
        "nn.Sequential(nn.Linear(8, 8), nn.GroupNorm(2, 8), nn.LayerNorm(8))",
        "torchvision.models.vit_b_16()",
        "torchvision.models.vgg11()",
        "torchvision.models.convnext_tiny()",
        "torchvision.models.resnet18(norm_layer=lambda n: nn.GroupNorm(2, n))",
        "[m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]",
        "torchvision.ops.FrozenBatchNorm2d(8)",
    ],
)
def test_other_norms_are_right(codes: Any, made: str) -> None:
    """Whose statistics are a sample's own."""
    text = f"import torch, torchvision\nfrom torch import nn\ntorch.manual_seed(0)\nmodel = {made}\n"
    assert codes(text, live=True) == []


def test_synchronised_batch_norm_is_right_where_processes_restart(codes: Any) -> None:
    """Its group is that of the process."""
    text = "import torch\nfrom torch import nn\ntorch.manual_seed(0)\nmodel = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(8))\n"
    assert codes(text, live=False) == []


def test_noise_is_noted_once(codes: Any) -> None:
    """Dropout and augmentation; a hundred layers are one note."""
    text = """
        from torch import nn
        from torchvision import transforms
        a, b, c = nn.Dropout(0.1), nn.Dropout(0.2), nn.Dropout(0)
        t = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.RandomCrop(3)])
    """
    assert codes(text) == ["KV602", "KV602"]
