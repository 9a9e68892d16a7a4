# SPDX-License-Identifier: Apache-2.0
"""What of Adam depends on the batch: its moving averages count in steps, and should count in samples."""

from __future__ import annotations

from kfp_volcano.errors import Problem, SpecError

__all__ = ["bias_ratio", "excess", "scaled_beta"]


def scaled_beta(beta: float, forgetting: float) -> float:
    """1 - `forgetting` (1 - beta): the decay with which steps of so many times the batch forget as fast by sample.

    The square root scaling rule of Malladi et al. 2022 (arXiv 2205.10287). Raises SpecError where `excess` names one.
    """
    if forgetting == 1.0:
        return beta  # 1 - (1 - beta) is not beta to the last bit
    problem = excess(beta, forgetting)
    if problem is not None:
        raise SpecError([problem])
    return 1.0 - forgetting * (1.0 - beta)


def excess(beta: float, forgetting: float) -> Problem | None:
    """Why there is no such decay: beyond `forgetting` (1 - beta) = 1 a step would have to forget more than all."""
    if forgetting * (1.0 - beta) <= 1.0:
        return None
    most = 1.0 / (1.0 - beta)
    words = f"adam-sde: {forgetting:.4g} times the base batch is too much for beta {beta:g}"
    remedy = f"batches of at most {most:.4g} times the base batch (elasticity.batch.max), or rule: sqrt"
    return Problem("elasticity.batch.rule", words, remedy)


def bias_ratio(before: float, now: float, steps: int) -> float:
    """What a moving average is multiplied with when its decay changes after `steps` steps.

    Adam divides an average by 1 - beta^steps, the sum of its weights had beta always been what it is now. This makes it
    so: the corrected average is the same just before and just after the change, and exact ever after.
    """
    return float((1.0 - now**steps) / (1.0 - before**steps))
