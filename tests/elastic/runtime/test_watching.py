# SPDX-License-Identifier: Apache-2.0
"""What a worker does about what the watch sees, step by step, with real state and checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import torch

from kfp_volcano.elastic.runtime.account import progress
from kfp_volcano.elastic.runtime.crew import Crew
from kfp_volcano.elastic.runtime.evaluation import Evaluation
from kfp_volcano.elastic.runtime.events import Events
from kfp_volcano.elastic.runtime.gradients import Total
from kfp_volcano.elastic.runtime.group import Solo
from kfp_volcano.elastic.runtime.journal import Journal
from kfp_volcano.elastic.runtime.learning import Learning
from kfp_volcano.elastic.runtime.loss_scale import LossScale
from kfp_volcano.elastic.runtime.message import Flag, Row
from kfp_volcano.elastic.runtime.monitor import Monitor
from kfp_volcano.elastic.runtime.saving import saving
from kfp_volcano.elastic.runtime.share import Attempt
from kfp_volcano.elastic.runtime.state import State
from kfp_volcano.elastic.runtime.surroundings import Surroundings
from kfp_volcano.elastic.sharding import Data
from kfp_volcano.errors import TrainingStoppedError
from kfp_volcano.schemas.events import Kind, read
from kfp_volcano.schemas.monitor import Monitor as Settings
from kfp_volcano.schemas.monitor import SlowDown, Spike
from kfp_volcano.schemas.training_job import RuntimeSettings

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Worker:
    """The first worker of a training whose numbers are made up."""

    folder: Path
    settings: Settings
    evaluation: Evaluation = field(default_factory=lambda: Evaluation(None, None))
    clock: float = 0.0
    made: int = field(default=0)

    def __post_init__(self) -> None:
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        learning = Learning(optimizer, 0.1, said=8, settings=RuntimeSettings(), rule=None, data=Data(4000, 1))
        self.optimizer, self.model = optimizer, model
        self.state = State(model, optimizer, {}, learning.plan, learning, self.settings, LossScale())
        here = Surroundings.read({}, job_dir=self.folder)
        events = Events(self.folder, owner=here.owner, position=lambda: (self.state.steps, self.state.samples))
        self.checkpoints = saving(here, self.state, Crew(), events, sync=lambda: None)
        self.monitor = Monitor(self.state, here, Crew(), Journal(here), self.checkpoints, self.evaluation, events)

    def step(self, loss: float, *, workers: int = 2, norm: float = 1.0) -> bool:
        """A step that all commit; whether training went back."""
        self.made, self.clock = self.made + 1, self.clock + 1.0
        attempt = Attempt(
            digest=f"{self.made}", step=self.state.steps, epoch=0, parent=self.state.lineage, world=workers,
            rank=0, rendezvous="all", counts=(8 // workers,) * workers, samples=self.state.samples,
        )  # fmt: skip
        rows = [
            Row.of(
                Row(
                    state=0, flags=Flag(0), silent_s=0.0, count=8 // workers, loss=loss / workers,
                    **self.monitor.told(attempt),
                ).numbers()
            )
            for _ in range(workers)
        ]  # fmt: skip
        with self.monitor.rate():
            self.rate = self.optimizer.param_groups[0]["lr"]
        total = Total([], whole=norm * norm)
        self.state.committed(attempt, f"{self.made:032x}", rows, total, first=None, batch=8, at=self.clock)
        return self.monitor.committed(attempt, rows, total)

    def save(self) -> None:
        self.checkpoints.now()

    def kinds(self) -> list[Kind]:
        files = {path.name: path.read_text().splitlines() for path in self.folder.glob("events/*.jsonl")}
        return [event.kind for event in read(files) if event.kind is not Kind.CHECKPOINT_SAVED]


def test_a_rollback_takes_the_newest_checkpoint_from_before_the_fault_and_asks_for_its_size(tmp_path: Path) -> None:
    """What is newer is withdrawn, the state counts as newer than what it takes back, and the rate is lower."""
    worker = Worker(tmp_path, Settings(loss=Spike(window=5, steps=2, then="rollback")))
    for _ in range(6):
        worker.step(1.0)
    worker.save()
    worker.step(1.0, workers=4)
    before = worker.state.version
    worker.step(9.0, workers=4)
    worker.save()
    assert worker.step(9.0, workers=4)
    assert worker.state.steps == 6
    assert worker.state.version > before
    assert [path.name.split("-")[1] for path in tmp_path.glob("checkpoints/step-*")] == ["0000000006"]
    told = progress(worker.state, at=0.0, workers=4, batch=8, loss=1.0, lr=0.1).watched
    assert told is not None
    assert (told.rollbacks, told.size, told.lr_factor) == (1, 2, 0.5)
    worker.step(1.0, workers=4)
    assert worker.kinds().count(Kind.RESIZED) == 1
    assert worker.rate == pytest.approx(0.05)
    assert worker.optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    assert {Kind.RESIZED, Kind.LOSS_SPIKE, Kind.ROLLED_BACK, Kind.RATE_LOWERED, Kind.SIZE_ASKED} <= set(worker.kinds())


def test_without_a_checkpoint_from_before_the_rate_is_lowered(tmp_path: Path) -> None:
    """And it is said why."""
    worker = Worker(tmp_path, Settings(loss=Spike(window=5, steps=2, then="rollback"), lower_lr=0.25))
    for loss in [1.0] * 6 + [9.0]:
        worker.step(loss)
    worker.save()
    assert not worker.step(9.0)
    assert worker.state.watch.measures.lr_factor == 0.25
    assert worker.kinds() == [Kind.LOSS_SPIKE, Kind.CHECKPOINT_FAILED, Kind.RATE_LOWERED]


def test_growth_stops_until_the_numbers_are_as_they_were(tmp_path: Path) -> None:
    """The autoscaler reads it in progress."""
    worker = Worker(tmp_path, Settings(gradient=Spike(window=5, steps=2, then="stopGrowing")))
    for norm in [1.0] * 6 + [9.0] * 3:
        worker.step(1.0, norm=norm)
    told = progress(worker.state, at=0.0, workers=2, batch=8, loss=1.0, lr=0.1).watched
    assert told is not None
    assert "the gradient's length of step 7 is 9" in told.growth_stopped
    for _ in range(2):
        worker.step(1.0)
    assert progress(worker.state, at=0.0, workers=2, batch=8, loss=1.0, lr=0.1).watched is None
    assert worker.kinds() == [Kind.GRADIENT_SPIKE, Kind.GROWTH_STOPPED, Kind.RECOVERED]


def test_a_slow_down_goes_back_to_before_the_resize(tmp_path: Path) -> None:
    """With a lower rate, for no batch led to it."""
    worker = Worker(tmp_path, Settings(slowdown=SlowDown(window=10, then="rollback")))
    for step in range(12):
        worker.step(5.0 - step / 10)
    worker.save()
    turned = [worker.step(3.8, workers=4) for _ in range(10)]
    assert turned == [False] * 9 + [True]
    assert worker.state.steps == 12
    assert worker.state.watch.measures.size == 2


def test_a_last_evaluation_that_cannot_be_put_together_is_said(tmp_path: Path) -> None:
    """The training has finished all the same."""
    worker = Worker(tmp_path, Settings(), evaluation=Evaluation(lambda: {"accuracy": 1.0}, None))
    worker.state.stopped_early = "for the test"
    assert not worker.monitor.last(Solo(Crew()), lambda _: None)
    assert worker.kinds() == [Kind.EVALUATION_FAILED]


def test_a_training_that_was_stopped_stays_stopped(tmp_path: Path) -> None:
    """Until a person takes the mark away."""
    worker = Worker(tmp_path, Settings(loss=Spike(window=5, then="stop")))
    worker.monitor.begin()
    worker.step(math.nan)
    with pytest.raises(TrainingStoppedError, match="the loss of step 0 is nan"):
        worker.monitor.check()
    again = Worker(tmp_path, worker.settings)
    again.monitor.check()
    with pytest.raises(TrainingStoppedError, match=r"remove .*stopped\.txt"):
        again.monitor.begin()
    (tmp_path / "stopped.txt").unlink()
    again.monitor.begin()
