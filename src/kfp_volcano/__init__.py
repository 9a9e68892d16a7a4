# SPDX-License-Identifier: Apache-2.0
"""Elastic, gang-scheduled training from Kubeflow Pipelines on Volcano.

In a pipeline: `elastic_training(spec, rounds=4)` is a training as a graph that tells its story, `training_task(spec)`
one as a single task, `compare_trainings(spec, groups, seeds=…)` an experiment, and `from_component(component,
workers=2)` lets a KFP component run as the workers of a Job. On a KFP backend: `Client(host=…).submit(pipeline)`. In
training code: `kfp_volcano.elastic.runtime`. Errors: `kfp_volcano.errors`. Everything else may change between minor
versions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kfp_volcano.version import __version__

if TYPE_CHECKING:
    from kfp_volcano.pipelines.client import Client
    from kfp_volcano.pipelines.experiments import compare_trainings
    from kfp_volcano.pipelines.training import elastic_training, training_task
    from kfp_volcano.pipelines.wrapping import from_component

__all__ = ["Client", "__version__", "compare_trainings", "elastic_training", "from_component", "training_task"]

_PIPELINES = {
    "Client": "client",
    "compare_trainings": "experiments",
    "elastic_training": "training",
    "from_component": "wrapping",
    "training_task": "training",
}


def __getattr__(name: str) -> Any:
    # kfp takes a second to import, and training code that imports this package never needs it.
    if name in _PIPELINES:
        module = import_module(f"kfp_volcano.pipelines.{_PIPELINES[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
