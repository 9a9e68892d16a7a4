# SPDX-License-Identifier: Apache-2.0
"""A scheduler of PyTorch as a function of samples: it takes a step for each base batch, whatever the batch is."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.optim.lr_scheduler import LRScheduler

__all__ = ["Schedule"]


class Schedule:
    """Steps a scheduler as a loop over batches of one size would, in which it is called once a batch.

    Schedulers compute from the value before: whoever multiplies what they wrote gives it back before `advance`.
    """

    def __init__(self, scheduler: LRScheduler, *, size: int, batch: int) -> None:
        """`batch` is the one the scheduler was written for, of a dataset of `size` samples.

        Raises SpecError for a scheduler that follows a metric.
        """
        if isinstance(scheduler, ReduceLROnPlateau):
            remedy = "a scheduler that follows the steps, or the rule=, a function of your own"
            raise SpecError([Problem("lr", "ReduceLROnPlateau follows a metric, not the samples", remedy)])
        self._scheduler = scheduler
        self._size, self._batch = size, batch
        self._done = 0

    @property
    def name(self) -> str:
        """What kind of scheduler it is."""
        return type(self._scheduler).__name__

    def advance(self, progress: float) -> None:
        """Takes the steps that are due where so many samples are committed, over all epochs."""
        due = self._due(progress)
        if self._done == due:
            return
        with warnings.catch_warnings():
            # A newcomer's optimizer has not stepped yet in its own process: no sign of a wrong order here.
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
            while self._done < due:
                self._scheduler.step()
                self._done += 1

    def _due(self, progress: float) -> int:
        """An epoch's last batch, however short, is a step of its own, as in the plain loop."""
        epoch, position = divmod(progress, self._size)
        return int(epoch) * -(-self._size // self._batch) + int(position // self._batch)

    def state_dict(self) -> dict[str, Any]:
        """Its place, and the scheduler's own state."""
        return {"done": self._done, "scheduler": self._scheduler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over another worker's."""
        self._done = state["done"]
        self._scheduler.load_state_dict(state["scheduler"])
