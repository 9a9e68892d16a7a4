"""How a step tells KFP of a training's results."""

from typing import TYPE_CHECKING

from kfp import dsl

if TYPE_CHECKING:
    from kfp_volcano.volcano.launcher.steps import Figures

__all__ = ["published"]


def published(figures: "Figures", model: dsl.Model, metrics: dsl.Metrics) -> str:
    """Fill in the artifacts; returns the step's output, the result as JSON.

    A model that stays where it lies has the path there as its URI: what has no scheme of a store KFP's launcher neither
    uploads nor downloads, and later steps are given the path as it is.
    """
    for name, value in figures.metrics.items():
        metrics.log_metric(name, value)
    model.metadata.update(figures.metadata)
    if figures.place:
        model.uri = figures.place
    return figures.json
