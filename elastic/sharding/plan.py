"""The plan of a training's data, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.elastic.sharding.order import order
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Cursor", "Plan"]


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """How far the data is committed: all of the state that the data has."""

    epoch: int = 0
    """Counted from 0; the number of epochs where all is committed."""
    position: int = 0
    """Samples of the epoch's order that are committed; less than the epoch holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which samples come after a cursor. A batch ends with its epoch, so that the last of an epoch may be smaller.

    Raises SpecError, with every problem, where size, batch or epochs are below 1 or the seed below 0.
    """

    size: int
    """Samples in the dataset."""
    batch: int
    """Samples in a global batch, where the number of workers does not change it."""
    epochs: int
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"size": 1, "batch": 1, "epochs": 1, "seed": 0}
        problems = [
            Problem(name, f"{value!r} is not a whole number of at least {minimum}")
            for name, minimum in least.items()
            if not isinstance(value := getattr(self, name), int) or isinstance(value, bool) or value < minimum
        ]
        if problems:
            raise SpecError(problems, source="training plan")

    def ids(self, cursor: Cursor, batch: int) -> NDArray[np.int64]:
        """The samples of the global batch that comes after a cursor, at most `batch` of them; read-only."""
        return order(self.seed, cursor.epoch, self.size)[cursor.position : cursor.position + batch]

    def after(self, cursor: Cursor, count: int) -> Cursor:
        """The cursor once `count` more samples of its epoch are committed."""
        position = cursor.position + count
        return Cursor(cursor.epoch, position) if position < self.size else Cursor(cursor.epoch + 1)

    def finished(self, cursor: Cursor) -> bool:
        """Whether every sample of every epoch is committed."""
        return cursor.epoch >= self.epochs

    def samples(self, cursor: Cursor) -> int:
        """How many samples are committed, over all epochs."""
        return cursor.epoch * self.size + cursor.position

    def cursor(self, samples: int) -> Cursor:
        """The cursor where so many samples are committed, over all epochs."""
        return Cursor(*divmod(samples, self.size))

    def steps_left(self, cursor: Cursor, batch: int) -> int:
        """How many steps are to come if all have this batch."""
        if self.finished(cursor):
            return 0
        rest = -(-(self.size - cursor.position) // batch)
        return rest + (self.epochs - cursor.epoch - 1) * -(-self.size // batch)

    def after_steps(self, steps: int) -> Cursor:
        """The cursor after the first steps of a training all of whose batches have the plan's size."""
        epoch, index = divmod(steps, -(-self.size // self.batch))
        return Cursor(epoch, index * self.batch)
