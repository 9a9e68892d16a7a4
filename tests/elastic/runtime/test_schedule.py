# SPDX-License-Identifier: Apache-2.0
"""PyTorch's schedulers as functions of samples."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim import lr_scheduler as schedulers

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.elastic.runtime.learning import Learning
from kfp_volcano.elastic.sharding import Data
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.batch import Batch
from kfp_volcano.schemas.training_job import RuntimeSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[torch.optim.Optimizer], schedulers.LRScheduler]

SIZE, BATCH, EPOCHS = 103, 10, 3
STEPS = 11 * EPOCHS


def warm_up_then_cosine(optimizer: torch.optim.Optimizer) -> schedulers.LRScheduler:
    first = schedulers.LinearLR(optimizer, start_factor=0.1, total_iters=7)
    then = schedulers.CosineAnnealingLR(optimizer, T_max=STEPS - 7)
    return schedulers.SequentialLR(optimizer, [first, then], milestones=[7])


MAKERS: dict[str, Make] = {
    "StepLR": lambda optimizer: schedulers.StepLR(optimizer, step_size=5, gamma=0.3),
    "MultiStepLR": lambda optimizer: schedulers.MultiStepLR(optimizer, [4, 9], gamma=0.1),
    "CosineAnnealingLR": lambda optimizer: schedulers.CosineAnnealingLR(optimizer, T_max=STEPS),
    "OneCycleLR": lambda optimizer: schedulers.OneCycleLR(optimizer, max_lr=0.5, total_steps=STEPS),
    "LinearLR": lambda optimizer: schedulers.LinearLR(optimizer, start_factor=0.01, total_iters=9),
    "SequentialLR": warm_up_then_cosine,
    "LambdaLR": lambda optimizer: schedulers.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
}
every_scheduler = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def small(make: Make, kind: Any = torch.optim.SGD) -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = kind(model.parameters(), lr=0.2, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
    return model, optimizer, make(optimizer)


def seen(optimizer: torch.optim.Optimizer) -> tuple[float, Any]:
    group = optimizer.param_groups[0]
    return group["lr"], group.get("momentum", group.get("betas"))


def plain(make: Make, kind: Any = torch.optim.SGD) -> list[tuple[float, Any]]:
    """What each step of the ordinary loop learns at."""
    _, optimizer, scheduler = small(make, kind)
    found = []
    for _ in range(STEPS):
        found.append(seen(optimizer))
        optimizer.step()
        scheduler.step()
    return found


def learning(optimizer: Any, lr: Any, said: Batch, **settings: Any) -> Learning:
    return Learning(optimizer, lr, said=said, settings=RuntimeSettings(**settings), rule=None, data=Data(SIZE, EPOCHS))


@every_scheduler
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_at_a_fixed_size_it_is_the_plain_loop(make: Make, kind: Any) -> None:
    """Each step learns at the same learning rate, momentum and betas, to the bit; short last batches included."""
    model, optimizer, scheduler = small(make, kind)
    found: list[tuple[float, Any]] = []
    optimizer.register_step_pre_hook(lambda *_: found.append(seen(optimizer)))
    training = Training(model, optimizer, size=SIZE, batch=BATCH, epochs=EPOCHS, lr=scheduler)
    for share in training:
        training.step((model(torch.ones(len(share.ids), 4)) ** 2).mean())
    assert found == plain(make, kind)


@every_scheduler
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_batch_that_follows_scales_what_the_plain_loop_has_there(make: Make, kind: Any) -> None:
    """However often the size changes, and whoever takes over: kappa times the plain value at as many samples."""
    rule = "linear" if kind is torch.optim.SGD else "adam-sde"
    batch = Batch(rule=rule, per_worker=5, base_workers=2)  # type: ignore[arg-type]
    _, optimizer, scheduler = small(make, kind)
    here = learning(optimizer, scheduler, batch)
    expected, plan, cursor = plain(make, kind), here.plan, here.plan.cursor(0)
    for step, workers in enumerate([2, 4, 2, 1, 1, 1, 3, 6, 2, 2, 1, 4]):
        count = len(plan.ids(cursor, workers * 5))
        lr = here.prepare(workers=workers, samples=plan.samples(cursor), count=count, noise_scale=None)
        base_lr, other = expected[cursor.epoch * 11 + cursor.position // BATCH]
        kappa = workers / 2
        assert lr == pytest.approx(base_lr * (kappa if rule == "linear" else kappa**0.5), rel=1e-12)
        if rule == "adam-sde":
            assert seen(optimizer)[1] == pytest.approx([1 - kappa * (1 - beta) for beta in other])
        else:
            assert seen(optimizer)[1] == other
        if workers == 2:
            assert seen(optimizer) == (base_lr, other)
        optimizer.step()
        cursor = plan.after(cursor, count)
        if step % 3 == 2:  # a newcomer takes over
            states = copy.deepcopy((optimizer.state_dict(), here.state_dict()))
            _, optimizer, scheduler = small(make, kind)
            here = learning(optimizer, scheduler, batch)
            optimizer.load_state_dict(states[0])
            here.load_state_dict(states[1])


@every_scheduler
def test_it_survives_a_checkpoint(make: Make, tmp_path: Any) -> None:
    """A Job that is restarted goes on where its scheduler was."""
    found: list[tuple[float, Any]] = []
    for steps in (14, 100):
        model, optimizer, scheduler = small(make)
        optimizer.register_step_pre_hook(lambda *_, optimizer=optimizer: found.append(seen(optimizer)))
        training = Training(model, optimizer, size=SIZE, batch=BATCH, epochs=EPOCHS, lr=scheduler, job_dir=tmp_path)
        for share in training:
            training.step((model(torch.ones(len(share.ids), 4)) ** 2).mean())
            if training.steps == steps:
                training._saving.now()
                break
    assert found == plain(make)


def test_it_ends_with_the_training_whatever_batch_the_spec_says() -> None:
    """It counts in the batch that it was written for: OneCycleLR's steps are neither too many nor too few."""
    _, optimizer, scheduler = small(MAKERS["OneCycleLR"])
    here = learning(optimizer, scheduler, Batch(size=BATCH), batch=20)
    assert here.plan.batch == 20
    last = here.prepare(workers=1, samples=SIZE * EPOCHS - 3, count=3, noise_scale=None)
    assert last == plain(MAKERS["OneCycleLR"])[-1][0]


def test_schedulers_that_do_not_follow_samples_are_refused() -> None:
    """One that follows a metric, and one of another optimizer."""
    _, optimizer, scheduler = small(schedulers.ReduceLROnPlateau)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="follows a metric"):
        learning(optimizer, scheduler, Batch(size=4))
    with pytest.raises(SpecError, match="another optimizer"):
        learning(optimizer, small(MAKERS["StepLR"])[2], Batch(size=4))
