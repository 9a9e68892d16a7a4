# SPDX-License-Identifier: Apache-2.0
"""What is asked of training code is told where it is not met, in words and at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.ones(8, 2)


def training(**given: Any) -> tuple[torch.nn.Module, Training]:
    """A model, and its training of one step."""
    model = torch.nn.Linear(2, 1)
    optimizer = given.pop("optimizer", torch.optim.SGD)(model.parameters(), lr=0.1)
    return model, Training(model, optimizer, size=8, batch=8, epochs=1, **given)


def run(trained: Training, loss: Callable[[], Any]) -> None:
    """The whole training."""
    for _ in trained:
        trained.step(loss())


@pytest.mark.parametrize(
    ("loss", "kind", "told"),
    [
        (lambda model: model(X).mean().item(), TypeError, "not float: leave out .item()"),
        (lambda model: model(X), ValueError, r"the mean over the share's samples, not \(8, 1\): loss.mean\(\)"),
        (lambda model: model(X).mean().detach(), ValueError, "does not depend on any parameter"),
        (lambda _: torch.nn.Linear(2, 1)(X).mean(), ValueError, "no parameter of the optimizer has: is it of another"),
    ],
)
def test_a_loss_that_cannot_train_is_told(loss: Callable[[Any], Any], kind: type[Exception], told: str) -> None:
    """At the first step."""
    model, found = training()
    with pytest.raises(kind, match=told):
        run(found, lambda: loss(model))


def test_parameters_that_a_loss_does_not_use_are_no_mistake() -> None:
    """As long as it uses some, in whatever shape one number comes."""
    model = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = Training(model, optimizer, size=8, batch=8, epochs=1)
    for _ in found:
        found.step(model[0](X).mean(dim=0))
    assert found.steps == 1


def test_arguments_that_do_not_fit_are_told_together() -> None:
    """Before anything is trained."""
    with pytest.raises(SpecError) as refused:
        training(optimizer=torch.optim.LBFGS, lr=-1.0, state={"counter": 3, "model": torch.nn.Linear(1, 1)})
    assert [problem.path for problem in refused.value.problems] == ["optimizer", "lr", "state['counter']"]


@pytest.mark.parametrize("found", [0.5, {"accuracy": "high"}, {"accuracy": torch.ones(2)}])
def test_an_evaluation_that_returns_no_metrics_is_told(found: Any) -> None:
    """With what it has to return."""
    model, trained = training(evaluate=lambda: found)
    with pytest.raises(TypeError, match="evaluate has to return"):
        run(trained, lambda: model(X).mean())
