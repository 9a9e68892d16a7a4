# SPDX-License-Identifier: Apache-2.0
"""The gradient noise scale: by how much the gradients of a batch's samples differ, in samples.

Workers have it almost for nothing: each has the mean gradient of its own share, all have that of the global batch, and
the squares of their lengths are enough (McCandlish et al. 2018, appendix A; AdaptDL's `gradient_noise_scale.py`). With
n_i of N samples at worker i of K, its mean gradient g_i and the whole one G = sum of n_i/N g_i,

    E |g_i|^2 = |mu|^2 + tr(S)/n_i        E |G|^2 = |mu|^2 + tr(S)/N

so that with L = sum of n_i/N |g_i|^2

    tr(S) = (L - |G|^2) N/(K - 1)         |mu|^2 = (K |G|^2 - L)/(K - 1)

Both are unbiased but noisy, and so averaged over steps, each by itself; their quotient is the noise scale. One worker
that feeds its share in parts knows the gradient g of the first n samples, before others are added to it, and the whole
one, and the same two equations give

    tr(S) = (|g|^2 - |G|^2) / (1/n - 1/N)      |mu|^2 = (N |G|^2 - n |g|^2) / (N - n)

One that feeds it at once has one gradient and tells nothing: the last value stays. (AdaptDL takes the difference of two
steps then, which is biased and costs a copy of the gradients.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NoiseScale", "looks"]

_EVERY = 10
"""Steps from one look at the lengths to the next: reading all gradients twice more costs a step some percent."""
_SMOOTHING = 0.99
"""By look and worker, for the look of K workers tells K times as much: AdaptDL's 0.999 by step and worker."""
_LEAST_WEIGHT = 0.2
"""Of what is averaged, before it is told: some 20 looks of one worker, 6 of four."""


def looks(step: int) -> bool:
    """Whether the lengths of gradients are looked at in a step."""
    return step % _EVERY == 0


class NoiseScale:
    """Averages over steps; part of the shared state."""

    def __init__(self) -> None:
        self._spread = self._length = self._weight = 0.0

    def add(self, counts: Sequence[int], parts: Sequence[float], whole: float) -> None:
        """A step was committed.

        Args:
            counts: Samples of each worker.
            parts: Squared length of each worker's part of the gradient, n_i/N g_i.
            whole: Squared length of their sum.
        """
        total = sum(counts)
        shares = [(count / total, part) for count, part in zip(counts, parts, strict=True) if count]
        workers = len(shares)
        if workers < 2 or not all(map(math.isfinite, (whole, *parts))):  # noqa: PLR2004 - one gradient tells nothing
            return
        mean = sum(part / share for share, part in shares)
        spread = (mean - whole) * total / (workers - 1)
        length = (workers * whole - mean) / (workers - 1)
        self._average(workers, spread, length)

    def add_first(self, count: int, total: int, part: float, whole: float) -> None:
        """A step of one worker was committed.

        Args:
            count: Samples of the part it fed first.
            total: Samples of the step, more than those.
            part: Squared length of that part of the gradient, count/total g.
            whole: Squared length of the whole gradient.
        """
        if not (math.isfinite(part) and math.isfinite(whole)):
            return
        mean = part * (total / count) ** 2
        spread = (mean - whole) / (1 / count - 1 / total)
        self._average(2, spread, (total * whole - count * mean) / (total - count))

    def _average(self, gradients: int, spread: float, length: float) -> None:
        keep = _SMOOTHING**gradients
        self._spread = keep * self._spread + (1 - keep) * spread
        self._length = keep * self._length + (1 - keep) * length
        self._weight = keep * self._weight + (1 - keep)

    @property
    def scale(self) -> float | None:
        """The noise scale in samples; infinite where no gradient stands out of it, None while too little is known."""
        if self._weight < _LEAST_WEIGHT:
            return None
        return max(0.0, self._spread / self._length) if self._length > 0 else math.inf

    @property
    def samples(self) -> float | None:
        """The noise scale where it is known and finite."""
        scale = self.scale
        return None if scale is None or math.isinf(scale) else scale

    def state_dict(self) -> dict[str, float]:
        """All of it as plain values."""
        return {"spread": self._spread, "length": self._length, "weight": self._weight}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Takes over another worker's averages."""
        self._spread, self._length, self._weight = state["spread"], state["length"], state["weight"]
