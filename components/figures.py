# SPDX-License-Identifier: Apache-2.0
"""How a step tells KFP of a training's results."""

from typing import TYPE_CHECKING

from kfp import dsl

if TYPE_CHECKING:
    from kfp_volcano.volcano.launcher.steps import Figures

__all__ = ["published"]


def published(figures: "Figures", model: dsl.Model, metrics: dsl.Metrics) -> str:
    """Fill in the artifacts' metadata; returns the step's output, the result as JSON."""
    for name, value in figures.metrics.items():
        metrics.log_metric(name, value)
    model.metadata.update(figures.metadata)
    return figures.json
