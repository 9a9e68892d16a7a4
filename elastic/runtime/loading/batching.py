# SPDX-License-Identifier: Apache-2.0
"""What becomes of a share's samples before they are given to the training code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Batching"]


class Batching:
    """Collates samples, and puts the batch into memory that a GPU can copy from while it computes.

    Args:
        collate: The user's; None: PyTorch's default.
        device: The GPU that the batch is pinned for; None: it is not pinned.
    """

    def __init__(self, collate: Callable[[list[Any]], Any] | None, device: torch.device | None) -> None:
        self._collate, self._device = collate or default_collate, device
        self.ahead = collate is None
        """Whether a batch may be made in another thread, before it is due. The user's function may draw at random, say
        to mix samples; the generators are those of the share that is trained."""

    def begin(self) -> None:
        """In a thread that makes batches, at its start."""
        if self._device is not None:
            torch.cuda.set_device(self._device)

    def batch(self, samples: Sequence[Any]) -> Any:
        """The batch of these samples."""
        batch = self._collate(list(samples))
        if self._device is None:
            return batch
        # PyTorch's own, which knows also what has a method of this name.
        return pin_memory(batch)  # type: ignore[no-untyped-call]
