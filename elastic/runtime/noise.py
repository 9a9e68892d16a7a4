"""The gradient noise scale: by how much the gradients of a batch's samples differ, in samples.

Workers have it almost for nothing: each has the mean gradient of its own share, all have that of the global batch, and
the squares of their lengths are enough (McCandlish et al. 2018, appendix A; AdaptDL's `gradient_noise_scale.py`). With
n_i of N samples at worker i of K, its mean gradient g_i and the whole one G = sum of n_i/N g_i,

    E |g_i|^2 = |mu|^2 + tr(S)/n_i        E |G|^2 = |mu|^2 + tr(S)/N

so that with L = sum of n_i/N |g_i|^2

    tr(S) = (L - |G|^2) N/(K - 1)         |mu|^2 = (K |G|^2 - L)/(K - 1)

Both are unbiased but noisy, and so averaged over steps, each by itself; their quotient is the noise scale. One worker
alone has one gradient and tells nothing: the last value stays. (AdaptDL takes the difference of two steps then, which
is biased and costs a copy of the gradients.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["EVERY", "NoiseScale"]

EVERY = 10
"""Steps from one look at the lengths to the next: reading all gradients twice more costs a step some percent."""
_SMOOTHING = 0.99
"""By look and worker, for the look of K workers tells K times as much: AdaptDL's 0.999 by step and worker."""
_LEAST_WEIGHT = 0.2
"""Of what is averaged, before it is told: some 20 looks of one worker, 6 of four."""


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
        keep = _SMOOTHING**workers
        self._spread = keep * self._spread + (1 - keep) * spread
        self._length = keep * self._length + (1 - keep) * length
        self._weight = keep * self._weight + (1 - keep)

    @property
    def samples(self) -> float | None:
        """The noise scale; None while too little is known, or no gradient stands out of the noise."""
        if self._weight < _LEAST_WEIGHT or self._length <= 0:
            return None
        return max(0.0, self._spread / self._length)

    def state_dict(self) -> dict[str, float]:
        """All of it as plain values."""
        return {"spread": self._spread, "length": self._length, "weight": self._weight}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Takes over another worker's averages."""
        self._spread, self._length, self._weight = state["spread"], state["length"], state["weight"]
