# SPDX-License-Identifier: Apache-2.0
"""Steps that pass on to a Job's workers what a user sets on their task (`dsl.TaskConfig`).

That the settings are to be passed on is written into the pipeline where there are any. Most tasks have none, and a
pipeline of hundreds is a good deal shorter without.
"""

import dataclasses
from typing import Any

from kfp import dsl
from kfp.dsl import base_component, pipeline_context

from kfp_volcano.schemas.names import MOUNT_PATH

__all__ = ["PassingStep"]


class _PassingTask(dsl.PipelineTask):
    """A task whose settings, if it has any, go to the workers."""

    @property
    def component_spec(self) -> Any:
        """What KFP takes the task for: with all that it passes on, or, where nothing is set on it, without."""
        container = getattr(self, "container_spec", None)
        said = _of_workers(getattr(self, "platform_config", None) or {})
        said = said or (container is not None and bool(container.resources or container.env))
        return self._passing if said else self._silent

    @component_spec.setter
    def component_spec(self, specs: Any) -> None:
        self._passing, self._silent = specs.passing, specs.silent


def _of_workers(platform_config: Any) -> bool:
    """Whether a task's platform settings say more than where the step itself has the checkpoint volume."""
    others = dict(platform_config.get("kubernetes", {}))
    mounts = [each for each in others.pop("pvcMount", ()) if each["mountPath"] != MOUNT_PATH]
    return bool(others or mounts or platform_config.keys() - {"kubernetes"})


@dataclasses.dataclass
class _Specs:
    """A component with its passthroughs and without; KFP reads the parts that both have in common."""

    passing: Any
    silent: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.passing, name)


class PassingStep(base_component.BaseComponent):
    """A component with passthroughs and a `task_config` input, for use within this package."""

    def __init__(self, component: base_component.BaseComponent) -> None:
        super().__init__(component.component_spec)
        spec = component.component_spec
        silent = dataclasses.replace(
            spec,
            inputs={name: each for name, each in spec.inputs.items() if name != "task_config"},
            task_config_passthroughs=None,
        )
        self._specs = _Specs(spec, silent)

    def __call__(self, **inputs: Any) -> dsl.PipelineTask:
        """Place it in a pipeline; all inputs are given."""
        return _PassingTask(
            self._specs,
            inputs,
            execute_locally=pipeline_context.Pipeline.get_default_pipeline() is None,
            execution_caching_default=pipeline_context.Pipeline.get_execution_caching_default(),
        )

    def execute(self, **inputs: Any) -> None:
        """Run it by itself, which has no use outside of a pipeline."""
        raise NotImplementedError("a step runs in a pipeline")
