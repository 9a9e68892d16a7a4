"""Elastic, gang-scheduled training from Kubeflow Pipelines on Volcano.

In a pipeline: `elastic_training(spec, rounds=4)`. In training code: `kfp_volcano.elastic.runtime`. Errors:
`kfp_volcano.errors`. Everything else may change between minor versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.version import __version__

if TYPE_CHECKING:
    from kfp_volcano.pipelines.training import elastic_training

__all__ = ["__version__", "elastic_training"]


def __getattr__(name: str) -> Any:
    # kfp takes a second to import, and training code that imports this package never needs it.
    if name == "elastic_training":
        from kfp_volcano.pipelines.training import elastic_training  # noqa: PLC0415

        return elastic_training
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
