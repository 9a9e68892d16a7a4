# SPDX-License-Identifier: Apache-2.0
"""The global batch as a user describes it, and what of it does not fit together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from kfp_volcano.schemas.codec import wire_key
from kfp_volcano.schemas.nouns import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FOLLOWING", "Batch", "BatchRule"]

BatchRule = Literal["constant", "linear", "sqrt", "adam-sde", "adascale", "legw", "custom"]
FOLLOWING = ("linear", "sqrt", "adam-sde", "adascale", "legw")
"""Rules for a batch that follows the number of workers."""
_RAMPED = ("linear", "sqrt", "adam-sde")
_SIZED = ("per_worker", "base_workers", "min", "max", "sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The global batch and how it, and the learning rate with it, follow the number of workers.

    Sizes are numbers of samples. Of `size`, `per_worker` and `base_workers` two are enough, for the first is the
    product of the others.
    """

    size: int | None = field(default=None, metadata={"key": "global"})
    """The global batch (`elasticity.batch.global`), the one for which the learning rate was chosen; None: the training
    code says it."""
    rule: BatchRule = "constant"
    per_worker: int | None = None
    """Samples each worker adds to the batch."""
    base_workers: int | None = None
    """With how many workers the learning rate is the training code's own."""
    min: int | None = None
    max: int | None = None
    sizes: tuple[int, ...] = ()
    """The sizes the batch may take; all where empty."""
    max_per_worker: int | None = None
    """Samples that fit a worker's device: a larger share is fed in parts, whose gradients are added up."""
    ramp: int | None = None
    """Samples over which the learning rate goes from what it was to what the rule says."""
    warmup: int | None = None
    """Samples of the warm-up at the base batch, for rule `legw`."""

    @property
    def share(self) -> int | None:
        """Samples a worker adds; None where the batch does not follow the workers."""
        if self.per_worker is None and self.size is not None and self.base_workers is not None:
            return self.size // self.base_workers
        return self.per_worker

    @property
    def base(self) -> int | None:
        """The base batch; None where only the training code can say it."""
        if self.size is None and self.per_worker is not None and self.base_workers is not None:
            return self.per_worker * self.base_workers
        return self.size

    def over(self, code: Batch) -> Batch:
        """What holds where this is what the spec says, and `code` what the training code does.

        A spec that says nothing but sizes leaves the rule to the code.
        """
        at_once = self.max_per_worker or code.max_per_worker
        if self == Batch(size=self.size, max_per_worker=self.max_per_worker):
            return replace(code, size=self.size or code.size, max_per_worker=at_once)
        return replace(self, size=self.size if self.base else code.base, max_per_worker=at_once)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """What does not fit together: the key, what is wrong with it, what to do."""
        if self.rule not in ("constant", *FOLLOWING, "custom"):
            yield "rule", f"{self.rule!r} is no rule", f"constant, {', '.join(FOLLOWING)} or custom"
        for name in ("per_worker", "base_workers", "min", "max", "max_per_worker", "ramp", "warmup"):
            if (value := getattr(self, name)) is not None and value < 1:
                yield wire_key(name, {}), f"{value} is less than 1", "at least 1"
        yield from self._of_rule()
        yield from self._sizes()

    def _of_rule(self) -> Iterator[tuple[str, str, str]]:
        if self.rule == "constant":
            for name in _SIZED:
                if getattr(self, name):
                    words = "is for a batch that follows the number of workers, not for rule constant"
                    yield wire_key(name, {}), words, f"leave it out, or rule: {', '.join(FOLLOWING)} or custom"
        elif self.rule in FOLLOWING and self.per_worker is None and self.base_workers is None:
            yield "perWorker", f"is missing: with rule {self.rule} the batch follows the number of workers", "add it"
        if self.rule not in _RAMPED and self.ramp:
            yield "ramp", f"is for rule {', '.join(_RAMPED)}, not {self.rule}", "leave it out"
        if self.rule != "legw" and self.warmup:
            yield "warmup", f"is for rule legw, not {self.rule}", "leave it out"
        elif self.rule == "legw" and not self.warmup:
            yield "warmup", "is missing: rule legw stretches a warm-up", "its samples at the base batch"

    def _sizes(self) -> Iterator[tuple[str, str, str]]:
        size, each, base = self.size, self.per_worker, self.base_workers
        if size is not None and base is not None:
            if each is None and size % base:
                lower = size - size % base
                yield (
                    "baseWorkers",
                    f"{counted(base, 'worker')} cannot share {size} samples evenly",
                    f"global: {lower + base}",
                )
            elif each is not None and each * base != size:
                words = f"{size} is not perWorker {each} times baseWorkers {base}"
                yield "global", words, f"{each * base}, or leave one of the three out"
        if self.min is not None and self.max is not None and self.min > self.max:
            yield "min", f"{self.min} is more than max {self.max}", f"at most {self.max}"
        if list(self.sizes) != sorted(set(self.sizes)):
            yield "sizes", "are not ascending", f"[{', '.join(map(str, sorted(set(self.sizes))))}]"
        wrong = [size for size in self.sizes if size < (self.min or 1) or size > (self.max or size)]
        if wrong:
            yield "sizes", f"{wrong[0]} is outside min and max", "leave it out"
