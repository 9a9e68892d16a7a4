# SPDX-License-Identifier: Apache-2.0
"""What is asked of training code: of what it makes a Training of, of its losses, and of its evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check", "checked_loss", "metrics_of"]


def check(optimizer: torch.optim.Optimizer, lr: Any, state: Mapping[str, Any]) -> None:
    """Looks at the arguments of a Training, as far as they do not depend on its plan.

    Raises:
        SpecError: with all that is wrong.
    """
    if found := [*_problems(optimizer, lr, state)]:
        raise SpecError(found, source="Training")


def _problems(optimizer: torch.optim.Optimizer, lr: Any, state: Mapping[str, Any]) -> Iterator[Problem]:
    if isinstance(optimizer, torch.optim.LBFGS):
        wrong = "LBFGS runs the forward pass several times a step, which no loop over shares can give it"
        yield Problem("optimizer", wrong, "one whose step() takes no closure: SGD, Adam, AdamW, …")
    if isinstance(lr, int | float) and not (math.isfinite(lr) and lr >= 0):
        yield Problem("lr", f"{lr!r} is no learning rate", "a number of 0 or more, a function, or a scheduler")
    for name, value in state.items():
        lacking = [each for each in ("state_dict", "load_state_dict") if not callable(getattr(value, each, None))]
        if lacking:
            what = f"{type(value).__name__} has no {' and no '.join(lacking)}"
            yield Problem(f"state[{name!r}]", what, "an object with both, like a scheduler or a module")


def checked_loss(loss: Any) -> torch.Tensor:
    """The loss, where gradients can be computed of it.

    Raises:
        TypeError: it is no tensor.
        ValueError: it is not one number, or nothing leads from it to a parameter.
    """
    if not isinstance(loss, torch.Tensor):
        raise TypeError(
            f"step(loss) takes the loss as a tensor, whose gradient it computes, not {type(loss).__name__}: "
            "leave out .item() and float()"
        )
    if loss.numel() != 1:
        raise ValueError(
            f"step(loss) takes one number, the mean over the share's samples, not {tuple(loss.shape)}: "
            "loss.mean(), or share.mean(losses) where copies fill the share up"
        )
    if not loss.requires_grad:
        raise ValueError(
            "the loss does not depend on any parameter: it was detached, made of a copy (torch.tensor(loss)), or "
            "computed under torch.no_grad()"
        )
    return loss


def metrics_of(found: Any) -> dict[str, float]:
    """What an evaluation returned, as plain numbers.

    Raises:
        TypeError: it is no mapping of names to numbers.
    """
    if not isinstance(found, Mapping):
        raise TypeError(f"evaluate has to return metrics by name, {{'accuracy': 0.9}}, not {type(found).__name__}")
    try:
        return {str(name): float(value) for name, value in found.items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"evaluate has to return numbers by name, but of {dict(found)!r}: {error}") from error
