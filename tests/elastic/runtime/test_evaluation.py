# SPDX-License-Identifier: Apache-2.0
"""Evaluations are shared among workers, and come to what one worker would have found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.runtime.evaluation import Evaluation
from kfp_volcano.elastic.runtime.learning import Learning
from kfp_volcano.elastic.runtime.loss_scale import LossScale
from kfp_volcano.elastic.runtime.state import State
from kfp_volcano.elastic.sharding import Cursor, Data
from kfp_volcano.schemas.monitor import Evaluate, Monitor
from kfp_volcano.schemas.training_job import RuntimeSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def state(evaluate: Evaluate | None = None) -> State:
    """After its first epoch, when an evaluation is due."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    learning = Learning(optimizer, 0.1, said=4, settings=RuntimeSettings(), rule=None, data=Data(8, 3))
    made = State(model, optimizer, {}, learning.plan, learning, Monitor(evaluate=evaluate or Evaluate()), LossScale())
    made.steps, made.cursor = 2, Cursor(1, 0)
    return made


def mean(ids: NDArray[np.int64]) -> dict[str, float]:
    return {"mean": float(ids.mean()), "square": float((ids**2).mean())}


@given(size=st.integers(1, 30), workers=st.integers(1, 5), processes=st.integers(1, 3))
def test_the_parts_of_all_workers_come_to_the_whole(size: int, workers: int, processes: int) -> None:
    """Whatever their number, also where there are more of them than samples; the processes of one count once."""
    shared = state()
    each = [Evaluation(mean, size, together=processes) for _ in range(workers * processes)]
    parts = [one.part(shared, rank, len(each)) for rank, one in enumerate(each)]
    assert sum(part.evaluated for part in parts) == size
    whole = each[0].whole(parts)
    assert whole is not None
    assert whole["mean"] == pytest.approx((size - 1) / 2)
    assert whole["square"] == pytest.approx(sum(n * n for n in range(size)) / size)


def test_without_a_size_the_first_worker_alone_is_asked() -> None:
    """With the model in evaluation mode and without gradients, once for a state however often its step is tried."""
    shared, calls = state(), []

    def evaluate() -> dict[str, float]:
        calls.append((shared.model.training, torch.is_grad_enabled()))
        return {"auc": 0.75}

    first, second = Evaluation(evaluate, None), Evaluation(evaluate, None)
    parts = [first.part(shared, 0, 2), second.part(shared, 1, 2)]
    assert first.part(shared, 0, 2) == parts[0]
    assert calls == [(False, False)]
    assert shared.model.training
    assert first.whole(parts) == {"auc": 0.75}
    assert list((second.whole(parts) or {}).values()) == [0.75]


def test_the_metric_that_is_watched_comes_first_for_all() -> None:
    """Also where others come before it in the alphabet, and with workers that evaluated nothing and know no names."""
    shared = state(Evaluate(metric="recall"))
    asked, other = (Evaluation(lambda: {"accuracy": 0.5, "recall": 0.25}, None) for _ in range(2))
    parts = [asked.part(shared, 0, 2), other.part(shared, 1, 2)]
    assert list((asked.whole(parts) or {}).items()) == [("recall", 0.25), ("accuracy", 0.5)]
    assert next(iter((other.whole(parts) or {}).values())) == 0.25


def test_nothing_is_evaluated_before_it_is_due() -> None:
    """Nor where the training code has no function."""
    shared = state()
    shared.cursor = Cursor(1, 4)
    for one in (Evaluation(mean, 8), Evaluation(None, None)):
        assert one.whole([one.part(shared, 0, 1)]) is None


def test_more_values_than_there_is_room_for_are_refused() -> None:
    """With how many may be."""
    many = Evaluation(lambda: {f"m{n}": 0.0 for n in range(9)}, None)
    with pytest.raises(ValueError, match="9 values; there is room for 8"):
        many.part(state(), 0, 1)
