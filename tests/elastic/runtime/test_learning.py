# SPDX-License-Identifier: Apache-2.0
"""Base values times what the rule says, and never anything else."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.runtime.learning import Learning
from kfp_volcano.elastic.scaling import Factors, Situation
from kfp_volcano.elastic.sharding import Data
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.batch import Batch
from kfp_volcano.schemas.training_job import RuntimeSettings

SGD: dict[str, Any] = {"lr": 0.1, "momentum": 0.9}
ADAM: dict[str, Any] = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8}


def make(
    rule: Any, kind: Any = torch.optim.SGD, options: dict[str, Any] = SGD, *, lr: Any = 0.1, **more: Any
) -> tuple[Learning, torch.optim.Optimizer]:
    optimizer = kind([torch.nn.Parameter(torch.ones(3))], **options)
    own = more.pop("own", None)
    batch = Batch(rule=rule, **{"per_worker": 4, "base_workers": 4, **more})
    settings = RuntimeSettings(workers=8)
    return Learning(optimizer, lr, said=batch, settings=settings, rule=own, data=Data(1000, 2)), optimizer


def at(here: Learning, workers: int, samples: int = 0, *, noise: float | None = None) -> float:
    return here.prepare(workers=workers, samples=samples, count=workers * 4, noise_scale=noise)


@given(
    st.sampled_from(["linear", "sqrt", "adam-sde", "legw"]),
    st.lists(st.integers(1, 8), max_size=6),
    st.sampled_from([0.1, 0.3, None]),
)
def test_four_eight_four_learn_at_the_same(rule: str, way: list[int], lr: float | None) -> None:
    """To the bit: learning rate, betas and eps of the base size come back, whatever sizes were in between."""
    more = {"warmup": 100} if rule == "legw" else {}
    here, optimizer = make(rule, torch.optim.Adam, ADAM, lr=lr, **more)
    at(here, 4, 1000)
    names = ("lr", "betas", "eps")
    base = {name: optimizer.param_groups[0][name] for name in names}
    for workers in way:
        at(here, workers, 1000)
        optimizer.step()
    assert at(here, 4, 1000) == (0.1 if lr is None else lr)
    assert {name: optimizer.param_groups[0][name] for name in names} == base


def test_each_group_is_scaled_from_its_own_base() -> None:
    """Groups of different learning rates keep their proportion."""
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:], "lr": 0.5}])
    batch = Batch(rule="linear", per_worker=4, base_workers=4)
    here = Learning(optimizer, None, said=batch, settings=RuntimeSettings(), rule=None, data=Data(100, 1))
    at(here, 8)
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 1.0]


def test_the_basis_tells_base_values_whatever_the_size() -> None:
    """A checkpoint's manifest has what the learning rate follows from, beside what it is."""
    here, optimizer = make("linear", lr=lambda _: 0.1)
    for workers in (4, 8):
        at(here, workers, 500)
        basis = {"lr": [0.1], "batch": 16, "rule": "linear", "schedule": "function", "progress": 500.0}
        assert here.basis(500) == basis
    assert optimizer.param_groups[0]["lr"] == 0.2
    plain, _ = make("constant", lr=None, per_worker=None, base_workers=None, size=16)
    assert (plain.basis(0)["lr"], plain.basis(0)["schedule"]) == ([0.1], None)


def test_adam_sde_changes_what_it_says() -> None:
    """For AdamW and for RMSprop, whose decay is alpha."""
    here, optimizer = make("adam-sde", torch.optim.AdamW, ADAM)
    assert at(here, 8) == pytest.approx(0.1 * math.sqrt(2))
    group = optimizer.param_groups[0]
    assert group["betas"] == pytest.approx((0.8, 0.998))
    assert group["eps"] == pytest.approx(1e-8 / math.sqrt(2))
    here, optimizer = make("adam-sde", torch.optim.RMSprop, {"lr": 0.1, "alpha": 0.9})
    at(here, 8)
    assert optimizer.param_groups[0]["alpha"] == pytest.approx(0.8)


def test_adams_averages_stay_what_they_are_where_betas_change() -> None:
    """Of constant gradients the update is the learning rate, at every step, for the correction stays exact."""
    here, optimizer = make("adam-sde", torch.optim.Adam, ADAM)
    parameter = optimizer.param_groups[0]["params"][0]
    for workers in (4, 4, 4, 8, 8, 2, 4, 1, 8):
        before = parameter.detach().clone()
        parameter.grad = torch.full((3,), 5.0)
        lr = at(here, workers)
        optimizer.step()
        assert (before - parameter.detach()).tolist() == pytest.approx([lr] * 3, rel=1e-4)


def test_the_ramp_goes_from_what_was_to_what_the_rule_says() -> None:
    """Over as many samples as stated, from wherever it has come to; for whoever takes over, too."""
    here, _ = make("linear", ramp=100)
    assert [at(here, 4), at(here, 8, 0), at(here, 8, 50)] == pytest.approx([0.1, 0.1, 0.15])
    newcomer, _ = make("linear", ramp=100)
    newcomer.load_state_dict(copy.deepcopy(here.state_dict()))
    assert at(newcomer, 8, 75) == pytest.approx(0.175)
    assert [at(newcomer, 8, 100), at(newcomer, 4, 120), at(newcomer, 4, 220)] == [0.2, 0.2, 0.1]


def test_adascale_drives_the_schedule_by_its_progress() -> None:
    """A step of gain r counts as r steps of the base batch: samples without noise teach little."""
    asked: list[int] = []
    here, _ = make("adascale", lr=lambda samples: asked.append(samples) or 0.1)
    assert at(here, 8, 0, noise=16.0) == pytest.approx(0.1 * 2 / 1.5)
    assert here.progress(32) == pytest.approx(16 * 2 / 1.5)
    assert at(here, 8, 32, noise=math.inf) == pytest.approx(0.2)
    assert here.progress(64) == pytest.approx(16 * 2 / 1.5 + 32)
    assert at(here, 4, 64, noise=16.0) == 0.1
    assert asked == [0, 21, 53]
    newcomer, _ = make("adascale")
    newcomer.load_state_dict(copy.deepcopy(here.state_dict()))
    assert newcomer.progress(80) == here.progress(80)


def test_a_rule_of_ones_own_is_called_with_all_there_is() -> None:
    """It returns factors, or a number for the learning rate alone; its batch may be constant."""
    seen: list[Situation] = []

    def rule(now: Situation) -> float:
        seen.append(now)
        return now.kappa**0.75

    here, _ = make("custom", own=rule)
    assert at(here, 8, 96, noise=7.0) == pytest.approx(0.1 * 2**0.75)
    assert seen == [
        Situation(workers=8, batch=32, base_batch=16, samples=96, progress=96, size=1000, epochs=2, noise_scale=7.0)
    ]
    constant = {"per_worker": None, "base_workers": None, "size": 16}
    here, optimizer = make("custom", torch.optim.Adam, ADAM, own=lambda _: Factors(eps=3.0), **constant)
    assert at(here, 8) == 0.1
    assert optimizer.param_groups[0]["eps"] == pytest.approx(3e-8)


def test_a_checkpoint_of_another_rule_gives_its_base_values() -> None:
    """A Job restarted with the constant rule after a scaled one learns at the base learning rate again."""
    before, optimizer = make("adam-sde", torch.optim.Adam, ADAM, lr=None)
    at(before, 8)
    constant = {"per_worker": None, "base_workers": None, "size": 16}
    here, other = make("constant", torch.optim.Adam, ADAM, lr=None, **constant)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    here.load_state_dict(copy.deepcopy(before.state_dict()))
    assert at(here, 8) == 0.1
    assert (other.param_groups[0]["betas"], other.param_groups[0]["eps"]) == ((0.9, 0.999), 1e-8)


def test_a_tensor_for_a_learning_rate_stays_one() -> None:
    """As optimizers that are captured in CUDA graphs want it."""
    here, optimizer = make("linear", options={"lr": torch.tensor(0.1)}, lr=None)
    lr = optimizer.param_groups[0]["lr"]
    assert at(here, 8) == pytest.approx(0.2)
    assert optimizer.param_groups[0]["lr"] is lr


@pytest.mark.parametrize(
    ("rule", "kind", "options", "more", "words"),
    [
        ("adam-sde", torch.optim.SGD, SGD, {}, "is for Adam"),
        ("adascale", torch.optim.Adam, ADAM, {}, "is for SGD"),
        ("adam-sde", torch.optim.Adam, ADAM, {"base_workers": 2, "per_worker": 64, "max": None}, None),
        ("adam-sde", torch.optim.Adam, {**ADAM, "betas": (0.5, 0.9)}, {"base_workers": 2}, "at most 2 times"),
        ("adam-sde", torch.optim.Adam, {**ADAM, "betas": (0.5, 0.9)}, {"base_workers": 2, "max": 16}, None),
        ("linear", torch.optim.SGD, SGD, {"own": lambda _: 1.0}, "rule= of its own"),
        ("custom", torch.optim.SGD, SGD, {}, "passes no rule="),
    ],
)
def test_what_does_not_fit_is_told_before_training(
    rule: str, kind: Any, options: dict[str, Any], more: dict[str, Any], words: str | None
) -> None:
    """Rule and optimizer, and the largest batch that the Job may come to."""
    if words is None:
        make(rule, kind, options, **more)
        return
    with pytest.raises(SpecError, match=words):
        make(rule, kind, options, **more)
