# SPDX-License-Identifier: Apache-2.0
"""What makes a function a step of a pipeline: it runs from where it is installed, its source is not in the pipeline.

KFP writes the source of a component into each use of it. The steps' image holds this package anyway, so a use names the
function alone: a pipeline with hundreds of trainings stays small, and compiles fast.
"""

from collections.abc import Callable
from typing import Any

from kfp import dsl

from kfp_volcano.components.image import STEP_IMAGE

__all__ = ["EXECUTOR_INPUT", "step", "step_command"]

EXECUTOR_INPUT = ["--executor_input={{$}}", "--protocol=kfp.dsl.executor_main"]
"""What each step is given. KFP's local runner runs no program that does not name its executor, for it has no images;
these steps are installed where it runs them."""


def step_command(module: str, *arguments: str) -> Any:
    """The container of a step that is a module of this package: a `ContainerSpecImplementation` of kfp."""
    from kfp.dsl import structures

    return structures.ContainerSpecImplementation(
        image=STEP_IMAGE, command=["python3", "-m", module], args=[*arguments, *EXECUTOR_INPUT]
    )


def step(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Like `dsl.component`, with the same options, for a function of this package; the function itself in the step."""

    def decorate(function: Callable[..., Any]) -> Any:
        if not hasattr(dsl, "component"):  # in the running step, where kfp leaves its compiler out
            return function
        component = dsl.component(base_image=STEP_IMAGE, install_kfp_package=False, **options)(function)
        container = step_command("kfp_volcano.components", f"{function.__module__}:{function.__name__}")
        component.component_spec.implementation.container = container
        for each in (component.component_spec.inputs or {}).values():
            each.description = None  # they are the pipeline's own business, not for a form to fill in
        if component.component_spec.task_config_passthroughs:
            from kfp_volcano.components.passing import PassingStep

            return PassingStep(component)
        return component

    return decorate
