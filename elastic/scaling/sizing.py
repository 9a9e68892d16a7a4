# SPDX-License-Identifier: Apache-2.0
"""How many samples a step holds with a number of workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfp_volcano.errors import Problem, SpecError

if TYPE_CHECKING:
    from kfp_volcano.schemas.batch import Batch

__all__ = ["Sizing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The global batch as a function of the number of workers; sizes in samples."""

    base: int
    """The batch for which the learning rate was chosen; every batch where it does not follow the workers."""
    per_worker: int | None = None
    """None: the batch is the base one for any number of workers."""
    least: int | None = None
    most: int | None = None
    sizes: tuple[int, ...] = ()
    """The sizes it may take, ascending; all where empty."""
    at_once: int | None = None
    """Samples that fit a worker's device; a larger share is fed in parts."""

    @classmethod
    def of(cls, batch: Batch) -> Sizing:
        """What a spec, or training code, says of the batch.

        Raises SpecError with every problem of it.
        """
        problems = [Problem(path, what, remedy) for path, what, remedy in batch.problems()]
        if not problems and batch.base is None:
            remedy = "set elasticity.batch.global in the TrainingJob, or pass batch="
            problems = [Problem("batch", "nobody says how many samples a global batch has", remedy)]
        if problems or batch.base is None:
            raise SpecError(problems, source="batch")
        return cls(
            base=batch.base,
            per_worker=batch.share,
            least=batch.min,
            most=batch.max,
            sizes=batch.sizes,
            at_once=batch.max_per_worker,
        )

    def batch(self, workers: int) -> int:
        """Samples in the global batch of so many workers.

        `per_worker` each, within `least` and `most`; of `sizes` the largest that is no more, else the smallest.
        """
        if self.per_worker is None:
            return self.base
        wanted = self.per_worker * workers
        if self.most is not None:
            wanted = min(wanted, self.most)
        if self.least is not None:
            wanted = max(wanted, self.least)
        if self.sizes:
            wanted = max((size for size in self.sizes if size <= wanted), default=self.sizes[0])
        return wanted

    def parts(self, share: int) -> int:
        """In how many parts a worker feeds a share of so many samples; at least one."""
        return 1 if self.at_once is None else max(1, -(-share // self.at_once))
