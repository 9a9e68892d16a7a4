"""Batch and learning rate for a number of workers: always from the base values, never from the last size.

So 4 → 8 → 4 workers end with the learning rate they began with; rules that multiply the present value compound their
error at each resize.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Rule", "Scaled", "scale"]

Rule = Literal["constant"]


@dataclass(frozen=True, slots=True)
class Scaled:
    """What a step trains with."""

    batch: int
    """Samples in the global batch."""
    lr: float


def scale(rule: Rule, *, batch: int, lr: float, workers: int) -> Scaled:  # noqa: ARG001 - the rule that ignores the size
    """Batch and learning rate for `workers` workers.

    `constant` keeps the global batch, so the learning rate stays too: workers only share the batch out differently.
    """
    if rule != "constant":
        raise ValueError(f"unknown scaling rule {rule!r}: expected 'constant'")
    return Scaled(batch=batch, lr=lr)
