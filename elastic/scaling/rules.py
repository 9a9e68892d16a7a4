# SPDX-License-Identifier: Apache-2.0
"""How the learning rate follows the batch.

A rule is a function from a `Situation` to `Factors` on base values, or to a plain number where only the learning rate
is to change. With kappa = batch / base batch:

======== ================================== ===================================== ======================================
rule     learning rate                      else                                  source
======== ================================== ===================================== ======================================
constant 1                                  the batch is constant too
linear   kappa                              gradual ramp                          Goyal et al. 2017 (arXiv 1706.02677)
sqrt     sqrt(kappa)                        gradual ramp                          Hoffer et al. 2017 (1705.08741)
adam-sde sqrt(kappa)                        1-beta times kappa, eps / sqrt(kappa) Malladi et al. 2022 (2205.10287)
adascale gain r, 1 <= r <= kappa            a step counts as r of the base batch  Johnson et al. 2020 (2007.05105)
legw     sqrt(kappa) min(1, samples/(kappa warmup))                               You et al. 2019 (1901.08256)
======== ================================== ===================================== ======================================

None of them needs momentum corrected: PyTorch keeps v = m v + g and multiplies by the learning rate afterwards, so
that v holds no learning rate (Goyal et al. §3, remark 2, speaks of v = m v + lr g).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.scaling.adam import excess
from kfp_volcano.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.schemas.batch import Batch

__all__ = ["Factors", "Rule", "Situation", "misfits", "named"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All that a step's learning rate may depend on: the same for all workers."""

    workers: int
    batch: int
    """Samples in the global batch of so many workers; an epoch's last step may hold less."""
    base_batch: int
    """Samples in the batch for which the learning rate was chosen."""
    samples: int
    """Committed before this step, over all epochs."""
    progress: float
    """What they are worth in samples of base batches; less than `samples` where a rule has a gain below kappa."""
    size: int
    """Samples in the dataset."""
    epochs: int
    noise_scale: float | None = None
    """Gradient noise scale, in samples; infinite where no gradient stands out of the noise; None: not known yet."""

    @property
    def kappa(self) -> float:
        """How many times the base batch the batch is."""
        return self.batch / self.base_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """What the base values of every parameter group are multiplied with."""

    lr: float = 1.0
    forgetting: float = 1.0
    """Of 1 - beta, for Adam's two betas and RMSprop's alpha."""
    eps: float = 1.0
    gain: float | None = None
    """How many steps at the base batch a step is worth to the schedule; None: kappa, as many as it has samples for."""


Rule = Callable[[Situation], "Factors | float"]


def named(batch: Batch) -> Rule:
    """The rule that a spec names; `custom` has none of its own: raises KeyError for it."""
    warmup = batch.warmup or 0
    rules: dict[str, Rule] = {
        "constant": lambda _: Factors(),
        "linear": lambda now: Factors(lr=now.kappa),
        "sqrt": lambda now: Factors(lr=math.sqrt(now.kappa)),
        "adam-sde": _adam_sde,
        "adascale": _adascale,
        "legw": lambda now: _legw(now, warmup),
    }
    return rules[batch.rule]


def _adam_sde(now: Situation) -> Factors:
    root = math.sqrt(now.kappa)
    return Factors(lr=root, forgetting=now.kappa, eps=1.0 / root)


def _adascale(now: Situation) -> Factors:
    """Gain r = (s + m) / (s / kappa + m), with s the variance of the base batch's gradient and m its squared mean.

    With the noise scale phi, s / m = phi / base batch. While that is not known the learning rate stays the base one.
    """
    phi = 0.0 if now.noise_scale is None else now.noise_scale
    gain = now.kappa if math.isinf(phi) else (1.0 + phi / now.base_batch) / (1.0 + phi / now.batch)
    return Factors(lr=gain, gain=gain)


def _legw(now: Situation, warmup: int) -> Factors:
    """A step's place in the warm-up is where it ends, so that the first does not learn at 0."""
    ended = (now.samples + now.batch) / (now.kappa * warmup) if warmup else 1.0
    return Factors(lr=math.sqrt(now.kappa) * min(1.0, ended))


def misfits(batch: Batch, groups: Sequence[Mapping[str, Any]], kappa: float) -> list[Problem]:
    """Why a rule is not for an optimizer with these parameter groups, at up to `kappa` times the base batch."""
    path = "elasticity.batch.rule"
    adaptive = [group for group in groups if "betas" in group or "alpha" in group]
    if batch.rule == "adascale" and adaptive:
        return [Problem(path, "adascale is for SGD: its gain is that of plain gradients", "sqrt or adam-sde")]
    if batch.rule != "adam-sde":
        return []
    if len(adaptive) < len(groups):
        return [Problem(path, "adam-sde is for Adam, AdamW and RMSprop", "linear, or adascale, for SGD")]
    betas = sorted({float(beta) for group in groups for beta in group.get("betas", (group.get("alpha"),))})
    return [problem for beta in betas if (problem := excess(beta, kappa))]
