# SPDX-License-Identifier: Apache-2.0
"""What a loss is multiplied by, so that float16 gradients neither vanish nor overflow: a `torch.amp.GradScaler`.

Each process scales its loss alike, and so the sum of the gradients over all workers is scaled too. It is divided when
it is whole. Where it is not finite then, it is so for every worker: all leave the update out and lower the scale alike,
without a word between them. PyTorch itself puts together what the shards of a sharded gradient show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kfp_volcano.elastic.runtime.gradients import Total

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LossScale"]


class LossScale:
    """Of a training; part of the shared state.

    Args:
        scaler: the training code's own; None, or one that is not enabled: losses are left as they are.
        device: of the gradients.
    """

    def __init__(self, scaler: torch.amp.GradScaler | None = None, device: torch.device | None = None) -> None:
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.value = 1.0
        """What losses are multiplied by now."""
        if self._scaler is not None:
            # A process without samples scales no loss of its own, but has gradients of others.
            self._scaler.scale(torch.zeros((), device=device))
            self.value = self._scaler.get_scale()

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss whose gradients are taken."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def update(self, optimizer: torch.optim.Optimizer) -> bool:
        """Divides the gradients and takes the optimizer's step, then sets the scale of the next one.

        False where they had overflowed, and the step was left out.
        """
        if self._scaler is None:
            optimizer.step()
            return True
        scale = self.value
        self._scaler.unscale_(optimizer)  # before the step, whose hooks clip
        self._scaler.step(optimizer)
        self._scaler.update()
        self.value = self._scaler.get_scale()
        return self.value >= scale  # it falls where they had, and only there

    @staticmethod
    def unscaled(total: Total, scale: float) -> Total:
        """What is known of a sum that was scaled, as if it had not been."""
        if scale == 1.0:
            return total
        squared = scale * scale
        whole = None if total.whole is None else total.whole / squared
        return Total(total.rows, tuple(part / squared for part in total.parts), whole)

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over another worker's, or a checkpoint's; nothing from a training that scaled nothing."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(dict(state))
            self.value = self._scaler.get_scale()
