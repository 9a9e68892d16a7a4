# SPDX-License-Identifier: Apache-2.0
"""The plan of a training's data, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from kfp_volcano.elastic.sharding.orders import Shuffled
from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kfp_volcano.elastic.sharding.orders import Order

__all__ = ["Cursor", "Data", "Last", "Plan"]

Last = Literal["keep", "drop", "pad"]
"""What becomes of an epoch's last batch where it is smaller than the plan's: `keep` feeds it as it is, `drop` leaves
its samples out of this epoch (they are others in each, where the order is shuffled), `pad` fills it up with copies that
have no weight, for code that wants one shape."""


@dataclass(frozen=True, slots=True)
class Data:
    """All of a plan but the batch."""

    size: int
    epochs: int
    seed: int = 0
    last: Last = "keep"
    order: Order | None = None

    def plan(self, batch: int) -> Plan:
        """The plan with a batch; raises as it does."""
        return Plan(size=self.size, batch=batch, epochs=self.epochs, seed=self.seed, last=self.last, order=self.order)


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

    Raises SpecError, with every problem, where size, batch or epochs are below 1 or the seed below 0, or the order is
    of another size.
    """

    size: int
    """Samples in an epoch: those of the dataset, unless the order feeds some more often than others."""
    batch: int
    """Samples in a global batch, where the number of workers does not change it."""
    epochs: int
    seed: int = 0
    last: Last = "keep"
    order: Order | None = None
    """None: every sample once, any before any other."""

    def __post_init__(self) -> None:
        least = {"size": 1, "batch": 1, "epochs": 1, "seed": 0}
        problems = [
            Problem(name, f"{value!r} is not a whole number of at least {minimum}")
            for name, minimum in least.items()
            if not isinstance(value := getattr(self, name), int) or isinstance(value, bool) or value < minimum
        ]
        if self.last not in get_args(Last):
            problems.append(Problem("last", f"{self.last!r} is none of {', '.join(get_args(Last))}"))
        if self.order is not None and self.order.size != self.size:
            problems.append(
                Problem("size", f"is {self.size}, but the order has {self.order.size} positions in an epoch")
            )
        if problems:
            raise SpecError(problems, source="training plan")

    def count(self, cursor: Cursor, batch: int) -> int:
        """How many samples the global batch after a cursor has, copies that fill it up not counted."""
        return min(batch, self.size - cursor.position)

    def ids(self, cursor: Cursor, batch: int) -> NDArray[np.int64]:
        """The samples of the global batch that comes after a cursor, at most `batch` of them; read-only."""
        return self.between(cursor.epoch, cursor.position, cursor.position + self.count(cursor, batch))

    def between(self, epoch: int, start: int, end: int) -> NDArray[np.int64]:
        """The samples at positions start..end-1 of an epoch; read-only."""
        return (self.order or Shuffled(self.size)).ids(self.seed, epoch, start, end)

    def width(self, cursor: Cursor, batch: int) -> int:
        """How many samples are shared out for that batch: with `pad` the copies that fill it up, at its end, too."""
        return batch if self.last == "pad" else self.count(cursor, batch)

    def after(self, cursor: Cursor, count: int) -> Cursor:
        """The cursor once `count` more samples of its epoch are committed.

        With `drop` the epoch ends where less than the plan's batch is left of it.
        """
        position = cursor.position + count
        return Cursor(cursor.epoch, position) if position + self._least <= self.size else Cursor(cursor.epoch + 1)

    def finished(self, cursor: Cursor) -> bool:
        """Whether every sample of every epoch is committed."""
        return cursor.epoch >= self.epochs

    def samples(self, cursor: Cursor) -> int:
        """How many samples are committed, over all epochs; those dropped at an epoch's end count as if they were."""
        return cursor.epoch * self.size + cursor.position

    def cursor(self, samples: int) -> Cursor:
        """The cursor where so many samples are committed, over all epochs."""
        return Cursor(*divmod(samples, self.size))

    def steps_left(self, cursor: Cursor, batch: int) -> int:
        """How many steps are to come if all have this batch."""
        if self.finished(cursor):
            return 0
        return self._steps(self.size - cursor.position, batch) + (self.epochs - cursor.epoch - 1) * self._steps(
            self.size, batch
        )

    def after_steps(self, steps: int) -> Cursor:
        """The cursor after the first steps of a training all of whose batches have the plan's size."""
        epoch, index = divmod(steps, self._steps(self.size, self.batch))
        return Cursor(epoch, index * self.batch)

    @property
    def _least(self) -> int:
        return self.batch if self.last == "drop" else 1

    def _steps(self, count: int, batch: int) -> int:
        return max(1, (count - self._least) // batch + 1)
