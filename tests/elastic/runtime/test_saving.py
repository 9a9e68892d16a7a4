# SPDX-License-Identifier: Apache-2.0
"""What a training begins with, what it leaves, and whose checkpoints it takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.elastic.runtime.checkpoints import Manifest
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from pathlib import Path


class Average:
    """A user's own state, changed in the loop's body after the step: a running mean of the weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.values = [p.detach().clone() for p in model.parameters()]

    def update(self) -> None:
        for mine, now in zip(self.values, self._model.parameters(), strict=True):
            mine.lerp_(now.detach(), 0.5)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = [value.clone() for value in state["values"]]


class Run:
    """A small training; ends early where it should."""

    def __init__(self, folder: Path | None, width: int = 4, **settings: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(width, 1)
        self.average = Average(self.model)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.width = width
        plan = {"size": 10, "batch": 4, "epochs": 3, **settings}
        self.training = Training(self.model, optimizer, state={"mean": self.average}, job_dir=folder, **plan)

    def go(self, until: int = 99, log: dict[int, float] | None = None) -> Run:
        data = torch.arange(10.0 * self.width).reshape(10, self.width) / 40
        for share in self.training:
            if self.training.steps == until:
                break
            self.training.step((self.model(data[share.ids]) ** 2).mean())
            self.average.update()
            if log and self.training.steps in log:
                self.training.log(accuracy=log[self.training.steps])
        return self

    @property
    def weights(self) -> list[torch.Tensor]:
        return [*self.model.state_dict().values(), *self.average.values]


def set_environment(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    monkeypatch.setenv(names.ENV_ELASTICITY, json.dumps(settings))


def manifests(folder: Path) -> list[Manifest]:
    paths = sorted((folder / "checkpoints").glob("step-*/manifest.json"))
    return [Manifest.parse(path.read_bytes()) for path in paths]


@pytest.mark.parametrize("until", [2, 4, 8])
def test_a_run_that_was_taken_up_ends_as_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    """Model, optimizer, the user's own state and the position in the data go on, bit for bit.

    The checkpoint is of the state after the loop's body: what the user does after a step belongs to it.
    """
    set_environment(monkeypatch, checkpoint_every_s=0.0)
    whole = Run(None).go().weights
    Run(tmp_path).go(until=until)
    assert manifests(tmp_path)
    again = Run(tmp_path).go()
    assert again.training.steps == 9
    assert all(ours.equal(theirs) for ours, theirs in zip(again.weights, whole, strict=True))


def test_the_manifest_tells_where_training_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps, samples, cursor, learning rate, plan and sizes are there for people to read."""
    set_environment(monkeypatch, checkpoint_every_s=0.0, checkpoint_keep=100)
    Run(tmp_path).go()
    last = {each.step: each for each in manifests(tmp_path)}[1]
    assert {key: last.about[key] for key in ("samples", "cursor", "lr", "size", "batch", "epochs", "seed")} == {
        "samples": 4,
        "cursor": {"epoch": 0, "position": 4},
        "lr": [0.1],
        "size": 10,
        "batch": 4,
        "epochs": 3,
        "seed": 0,
    }
    assert last.about["workers"] == 1


def test_the_best_state_is_saved_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state a metric was logged of is saved where it is the best so far, also in a run taken up again."""
    set_environment(monkeypatch, checkpoint_best="accuracy", checkpoint_keep=1)
    Run(tmp_path).go(until=4, log={1: 0.5, 2: 0.9, 3: 0.7})
    assert [(each.step, each.metrics["accuracy"]) for each in manifests(tmp_path)] == [(2, 0.9)]
    Run(tmp_path).go(log={3: 0.8, 5: 0.95, 7: 0.1})
    assert [(each.step, each.metrics["accuracy"]) for each in manifests(tmp_path)] == [(5, 0.95)]


@pytest.mark.parametrize("other", [{"epochs": 4}, {"size": 9, "seed": 3}])
@pytest.mark.parametrize("until", [4, 99])
def test_the_folder_of_another_training_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, int], until: int
) -> None:
    """Neither its checkpoints nor its final model are taken for this training's; the error names what differs."""
    set_environment(monkeypatch, checkpoint_every_s=0.0)
    Run(tmp_path).go(until=until)
    before = sorted(tmp_path.rglob("*.pt"))
    with pytest.raises(SpecError, match="another training") as caught:
        Run(tmp_path, **other).go()
    assert all(name in str(caught.value) for name in other)
    assert "checkpoint.from" in str(caught.value)
    assert sorted(tmp_path.rglob("*.pt")) == before


def test_checkpoints_of_another_model_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that does not fit is an error that says so, not a traceback out of torch."""
    set_environment(monkeypatch, checkpoint_every_s=0.0)
    Run(tmp_path).go(until=4)
    with pytest.raises(SpecError, match="not of this script's model"):
        Run(tmp_path, width=5).go()


@pytest.mark.parametrize("part", ["checkpoints", "final"])
def test_a_training_begins_with_anothers_weights_on_purpose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """`checkpoint.from` takes weights from checkpoints or a final model; the data begins anew, once."""
    set_environment(monkeypatch, checkpoint_every_s=0.0)
    first = Run(tmp_path / "one").go()
    weight = first.model.weight
    if part == "checkpoints":
        newest = max((tmp_path / "one" / part).rglob("*.pt"))
        weight = torch.load(newest, weights_only=True)["model"]["weight"]
    set_environment(monkeypatch, checkpoint_every_s=0.0, checkpoint_from=str(tmp_path / "one" / part))
    second = Run(tmp_path / "two", epochs=5)
    shares = iter(second.training)
    next(shares)
    assert second.training.samples == 0
    assert second.model.weight.equal(weight)
    shares.close()
    Run(tmp_path / "two", epochs=5).go(until=2)
    third = Run(tmp_path / "two", epochs=5)
    shares = iter(third.training)
    next(shares)
    assert third.training.steps > 0
    shares.close()


def test_nothing_to_begin_with_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistaken place does not begin with random weights instead."""
    set_environment(monkeypatch, checkpoint_from=str(tmp_path / "none"))
    with pytest.raises(SpecError, match="nothing whole to begin with"):
        Run(None).go()
