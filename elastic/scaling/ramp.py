# SPDX-License-Identifier: Apache-2.0
"""From one factor of the learning rate to the next, little by little."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Ramp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A factor on its way to the one that a rule asks for: Goyal et al. 2017 §2.2, gradual warm-up.

    A large learning rate all at once throws weights away that a small one found. The way begins at 1, the base learning
    rate, and at each new target wherever it has come to; at its end the factor is the target itself, to the bit.
    """

    length: int = 0
    """Samples from one factor to the next; 0: at once."""
    began: int = 0
    """Samples committed when the target was set."""
    start: float = 1.0
    target: float = 1.0

    def toward(self, target: float, samples: int) -> Ramp:
        """The ramp once a rule asks for `target` after so many samples committed."""
        if target == self.target:
            return self
        return replace(self, began=samples, start=self.at(samples), target=target)

    def at(self, samples: int) -> float:
        """The factor after so many samples committed."""
        if samples - self.began >= self.length:
            return self.target
        return self.start + (self.target - self.start) * (samples - self.began) / self.length
