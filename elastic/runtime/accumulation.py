# SPDX-License-Identifier: Apache-2.0
"""What the parts of a share add up to, where it does not fit the worker's device at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from kfp_volcano.elastic.runtime.loss_scale import LossScale
    from kfp_volcano.elastic.runtime.share import Share

__all__ = ["Accumulation", "FirstPart"]


@dataclass(frozen=True, slots=True)
class FirstPart:
    """The gradient of a share's first part, when nothing else was added to it yet."""

    count: int
    """Its samples."""
    square: float
    """Squared length of its part of the global batch's gradient."""


class Accumulation:
    """Adds gradients up in `grad`, where PyTorch does it anyway, each weighted by its samples.

    So parts of unequal size, and shares of unequal size, come to the gradient of the global batch's mean loss.
    """

    def __init__(self) -> None:
        self._loss: torch.Tensor | float = 0.0
        self._first: FirstPart | None = None

    def begin(self) -> None:
        """A share begins; its gradients are empty."""
        self._loss, self._first = 0.0, None

    def add(self, share: Share, loss: torch.Tensor, scale: LossScale) -> None:
        """Backward pass of a part with this mean loss over its samples; gradients are scaled, the loss kept is not."""
        whole = share.fed == share.attempt.count
        weighted = loss if whole else loss * (share.fed / share.attempt.count)
        torch.autograd.backward(scale.scaled(weighted))
        self._loss = self._loss + weighted.detach()

    def look(self, share: Share, square: float) -> None:
        """Keeps the squared length of the first part's gradient."""
        self._first = FirstPart(share.fed, square)

    @property
    def loss(self) -> float:
        """The share's part of the global batch's mean loss."""
        return float(self._loss)

    @property
    def first(self) -> FirstPart | None:
        """What `look` kept; None where nothing was."""
        return self._first
