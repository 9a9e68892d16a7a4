# SPDX-License-Identifier: Apache-2.0
"""A loader in one process' training: what comes is what was asked for, however it was fetched."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import threading
import time
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from kfp_volcano.elastic.runtime import Batch, Training
from kfp_volcano.elastic.runtime.loading import sources
from kfp_volcano.elastic.sharding import Cursor, Mixture
from kfp_volcano.errors import SpecError

SIZE = 37


class Noisy:
    """Samples of different lengths, with noise on them, by all three generators."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = random.random() + np.random.random() + torch.rand(()).item()  # noqa: NPY002 - as scripts do
        return {"x": torch.tensor([float(index), noise]), "long": np.full(index % 5, index), "name": f"sample {index}"}


def first(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Collates, and draws."""
    return {
        "x": torch.stack([sample["x"] for sample in samples]),
        "long": [sample["long"] for sample in samples],
        "names": [sample["name"] for sample in samples],
        "drawn": random.random() + torch.rand(()).item(),
    }


def train(*, workers: int, batch: Any = 8, collate: Any = first, **given: Any) -> list[Any]:
    """What came, batch by batch, and what the loop's body drew."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    training = Training(model, optimizer, batch=batch, **{"size": SIZE, "epochs": 3, **given})
    found = []
    for share, samples in training.loader(Noisy(), workers=workers, collate=collate, prefetch=2):
        assert samples["x"][:, 0].tolist() == share.ids.tolist()
        assert samples["names"] == [f"sample {index}" for index in share.ids]
        assert [each.tolist() for each in samples["long"]] == [[index] * (index % 5) for index in share.ids.tolist()]
        found.append((share.ids.tolist(), samples["x"][:, 1].tolist(), samples["drawn"], torch.rand(()).item()))
        training.step(model(samples["x"]).mean())
    return found


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"last": "pad"},
        {"last": "drop"},
        {"order": Mixture([index % 2 for index in range(SIZE)], {0: 1, 1: 3}), "size": None},
        {"batch": Batch(size=8, max_per_worker=3)},
    ],
    ids=["keep", "pad", "drop", "mixture", "parts"],
)
def test_fetching_ahead_changes_nothing(given: dict[str, Any]) -> None:
    """Samples, noise on them, what collating and the loop's body draw: all as if fetched when due, by one process."""
    assert train(workers=2, **given) == train(workers=0, **given)


def test_a_run_that_is_taken_up_again_draws_what_it_would_have(tmp_path) -> None:
    """The noise of a sample follows from its place in the training."""
    whole = train(workers=2)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    training = Training(model, torch.optim.SGD(model.parameters(), lr=0.001), batch=8, size=SIZE, epochs=3)
    training._state.cursor = training._plan.cursor(SIZE + 8)
    rest = [samples["x"][:, 1].tolist() for _, samples in _fed(training, training.loader(Noisy(), collate=first))]
    assert rest == [noise for _, noise, _, _ in whole[6:]]


def _fed(training: Training, loader: Any) -> Any:
    for share, samples in loader:
        training.step(training._state.model(samples["x"]).mean())
        yield share, samples


def test_a_step_that_is_done_again_has_its_samples_still() -> None:
    """Nothing is fetched twice for it."""
    model = torch.nn.Linear(2, 1)
    training = Training(model, torch.optim.SGD(model.parameters(), lr=0.001), batch=8, size=SIZE, epochs=1)
    seen, settle = [], training._settler.settle

    def failing(attempt: Any) -> bool:
        if len(seen) == 2:
            training._settler._discard(attempt, "a test", stray=False)
            return False
        return settle(attempt)

    training._settler.settle = failing  # type: ignore[method-assign]
    for share, samples in training.loader(Noisy(), collate=first):
        seen.append((share.ids.tolist(), samples["x"][:, 1].tolist()))
        training.step(model(samples["x"]).mean())
    assert seen[1] == seen[2]
    assert len(seen) == 6


def test_what_is_said_to_come_comes() -> None:
    """Over epochs' ends, in parts, and behind samples that are passed over."""
    model = torch.nn.Linear(2, 1)
    batch = Batch(size=8, max_per_worker=3)
    training = Training(model, torch.optim.SGD(model.parameters(), lr=0.001), batch=batch, size=SIZE, epochs=3)
    training._state.watch.skips.add(Cursor(0, 12), 10)
    training._state.watch.skips.add(Cursor(2, 0), 9)
    said, came = [], []
    for share in training:
        if share.opens:
            said.append([each.positions.tolist() for each in training._dealer.ahead(3)])
        came.append(share.positions.tolist())
        training.step(model(torch.zeros(len(share.ids), 2)).mean())
    assert sorted(position for each in came for position in each) == [*range(12), *range(22, 74), *range(83, 111)]
    for coming in said:
        first = came.index(coming[0])
        assert came[first : first + len(coming)] == coming


class Failing(Noisy):
    """Has a sample that cannot be read."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            raise OSError("sample 5 cannot be read")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_cannot_be_read_ends_the_loop(workers: int) -> None:
    """With the dataset's own error, and with the processes."""
    before = set(psutil.Process().children())
    model = torch.nn.Linear(2, 1)
    training = Training(model, torch.optim.SGD(model.parameters(), lr=0.001), batch=8, size=SIZE, epochs=1)
    with pytest.raises(OSError, match="sample 5 cannot be read"):
        list(_fed(training, training.loader(Failing(), collate=first, workers=workers)))
    assert not set(psutil.Process().children()) - before


def test_what_does_not_fit_is_refused() -> None:
    """Every problem at once."""
    model = torch.nn.Linear(2, 1)
    training = Training(model, torch.optim.SGD(model.parameters(), lr=0.001), batch=8, size=SIZE + 1, epochs=1)
    with pytest.raises(SpecError) as refused:
        training.loader(Noisy(), workers=-1, prefetch=0)
    assert [problem.path for problem in refused.value.problems] == ["dataset", "workers", "prefetch"]
    assert "has 37 samples, the training's plan 38" in str(refused.value)


class Slow(Noisy):
    """As in Noisy, in a while."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        time.sleep(0.001)
        return super().__getitem__(index)


def test_leaving_the_loop_ends_its_processes() -> None:
    """Whatever was under way."""
    before = set(psutil.Process().children())
    model = torch.nn.Linear(2, 1)
    training = Training(model, torch.optim.SGD(model.parameters(), lr=0.001), batch=8, size=SIZE, epochs=100)
    for _, samples in training.loader(Slow(), collate=first):
        training.step(model(samples["x"]).mean())
        if training.steps == 3:
            break
    assert set(psutil.Process().children()) <= before


class Stuck(Noisy):
    """Never gives sample 5 before it is let go."""

    def __init__(self) -> None:
        self.go = multiprocessing.get_context("fork").Event()

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            self.go.wait()
        return super().__getitem__(index)


def test_a_sample_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """With the stack of the process that hangs at it; when it comes training goes on."""
    monkeypatch.setattr(sources, "PATIENCE_S", 0.2)
    dataset, told = Stuck(), []
    monkeypatch.setattr(sources._log, "warning", lambda text, *given: told.append(text % given))
    shown = ""

    def let_go() -> None:
        nonlocal shown
        while "in __getitem__" not in shown:
            shown += capfd.readouterr().err
        dataset.go.set()

    friend = threading.Thread(target=let_go, daemon=True)
    friend.start()
    model = torch.nn.Linear(2, 1)
    training = Training(model, torch.optim.SGD(model.parameters(), lr=0.001), batch=SIZE, size=SIZE, epochs=1)
    for _, samples in training.loader(dataset, collate=first):
        training.step(model(samples["x"]).mean())
    friend.join()
    assert training.steps == 1
    assert re.match(
        r"the step has waited \S+ s for its samples: process \d+ is at dataset\[5\], and its stack below", told[-1]
    )


class Deadly(Noisy):
    """Ends the process that asks for sample 5."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_process_that_was_killed_is_told_with_what_may_help() -> None:
    """How it ended, and the settings that decide how much memory they take."""
    model = torch.nn.Linear(2, 1)
    training = Training(model, torch.optim.SGD(model.parameters(), lr=0.001), batch=8, size=SIZE, epochs=1)
    with pytest.raises(RuntimeError, match=r"killed by (SIGKILL.*resources.memory|signal: Killed)"):
        list(_fed(training, training.loader(Deadly(), collate=first)))
