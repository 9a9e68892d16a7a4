# SPDX-License-Identifier: Apache-2.0
"""A loss that is scaled for float16: the same training, but for updates that overflow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kfp_volcano.elastic.runtime import Batch, Training
from kfp_volcano.schemas import names
from kfp_volcano.schemas.events import Event, Kind, read

if TYPE_CHECKING:
    from pathlib import Path

POINTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))


class Run:
    """A small training; in the steps `overflows` its gradients are not finite."""

    def __init__(self, folder: Path | None = None, *, scale: float | None = None, **settings: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scaler = None if scale is None else torch.amp.GradScaler("cpu", init_scale=scale)
        plan = {"size": 40, "batch": 8, "epochs": 2, **settings}
        self.training = Training(self.model, self.optimizer, scaler=self.scaler, job_dir=folder, **plan)
        self.lengths: list[float] = []
        self.optimizer.register_step_pre_hook(lambda *_: self.lengths.append(self.model.weight.grad.norm().item()))

    def go(self, *, until: int = 99, overflows: tuple[int, ...] = ()) -> Run:
        for share in self.training:
            if self.training.steps == until:
                self.training._saving.now()
                break
            outputs = self.model(POINTS[share.ids])
            if self.training.steps in overflows:
                outputs.register_hook(lambda grad: grad * torch.inf)
            self.training.step(outputs.square().mean())
        return self

    @property
    def weights(self) -> list[torch.Tensor]:
        return list(self.model.state_dict().values())


def events(folder: Path) -> list[Event]:
    return read({path.name: path.read_text().splitlines() for path in (folder / "events").glob("*.jsonl")})


@pytest.mark.parametrize("most", [None, 3])
def test_a_scaled_loss_trains_the_same_model(most: int | None) -> None:
    """Also where shares are fed in parts; what hooks of the optimizer see, and clip, is the gradient itself."""
    plain, scaled = (Run(scale=scale, batch=Batch(size=8, max_per_worker=most)).go() for scale in (None, 2.0**12))
    torch.testing.assert_close(scaled.weights, plain.weights, rtol=0, atol=0)
    assert scaled.lengths == plain.lengths
    noise = [run.training._state.noise.state_dict() for run in (plain, scaled)]
    assert noise[0] == noise[1]


def test_an_overflow_costs_the_update_but_no_sample() -> None:
    """The weights stay, the scale falls, and the step is committed like all others."""
    run = Run(scale=2.0**16)
    before = [value.clone() for value in run.weights]
    run.go(until=2, overflows=(0, 1))
    torch.testing.assert_close(run.weights, before, rtol=0, atol=0)
    assert run.training.samples == 16
    run = Run(scale=2.0**16).go(overflows=(0, 1))
    assert run.scaler is not None
    assert run.scaler.get_scale() == 2.0**14
    assert (run.training.samples, run.training.steps, len(run.lengths)) == (80, 10, 8)


def test_the_scale_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    """A run that is taken up again scales, and ends, as one that was not."""
    whole = Run(tmp_path / "whole", scale=2.0**10).go(overflows=(1, 2))
    Run(tmp_path / "parted", scale=2.0**10).go(until=5, overflows=(1, 2))
    parted = Run(tmp_path / "parted", scale=2.0**16).go()
    assert parted.scaler is not None
    assert parted.scaler.get_scale() == 2.0**8
    torch.testing.assert_close(parted.weights, whole.weights, rtol=0, atol=0)


@pytest.mark.parametrize(("scale", "seen"), [(2.0**10, False), (1.0, True)])
def test_the_watch_on_gradients_minds_an_overflow_only_where_the_scale_is_not_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: float, *, seen: bool
) -> None:
    """The log tells of it; the watch sees a gradient that is not finite where nothing had made it larger."""
    watched = {"gradient": {"spike": 3.0, "window": 5, "steps": 1, "then": "alert"}}
    monkeypatch.setenv(names.ENV_ELASTICITY, json.dumps({"monitor": watched}))
    Run(tmp_path, scale=scale).go(overflows=(7,))
    kinds = [event.kind for event in events(tmp_path)]
    assert kinds.count(Kind.UPDATE_SKIPPED) == 1
    assert (Kind.NOT_FINITE in kinds) is seen


def test_a_scaler_that_is_not_enabled_changes_nothing() -> None:
    """Training code may pass it always, and switch it off for bfloat16."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    training = Training(model, optimizer, size=40, batch=8, epochs=2, scaler=scaler)
    for share in training:
        training.step(model(POINTS[share.ids]).square().mean())
    torch.testing.assert_close(list(model.state_dict().values()), Run().go().weights, rtol=0, atol=0)
