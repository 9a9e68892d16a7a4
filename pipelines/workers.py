# SPDX-License-Identifier: Apache-2.0
"""What a KFP component becomes as the workers of a TrainingJob, and what of it cannot be carried over."""

from collections.abc import Iterator, Mapping
from typing import Any, Optional

from kfp import dsl
from kfp.dsl import base_component, pipeline_channel
from kfp.dsl.types import type_utils

from kfp_volcano.components.wrapped import PREFIX
from kfp_volcano.errors import Problem
from kfp_volcano.schemas.wire import API_VERSION, KIND
from kfp_volcano.volcano.launcher.placeholders import unknown_placeholders

__all__ = ["argument_problems", "component_problems", "declared", "is_parameter", "training_job_of", "words_of"]

_FRAMEWORKS = ("custom", "pytorch", "tensorflow")
"""Those whose Jobs may have workers alone."""
_SAID = ("image", "command", "args", "queue", "roles", "checkpoint")
"""Keys of a spec that the component or other arguments say."""


def training_job_of(
    source: Any,
    workers: Any,
    resources: Optional[Mapping[str, Any]],
    queue: str,
    volume: Optional[str],
    namespace: Optional[str],
    spec: Mapping[str, Any],
) -> dict[str, Any]:
    """The TrainingJob of a component (a `ComponentSpec` of kfp), but for its command, which the run fills in."""
    container = source.implementation.container
    strategy = {"strategy": "fixed"} if isinstance(workers, int) else {}
    env = {**(getattr(container, "env", None) or {}), **spec.get("env", {})}
    elasticity = {**strategy, **spec.get("elasticity", {})}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": source.name, **({"namespace": namespace} if namespace else {})},
        "spec": {
            "framework": "custom",
            **spec,
            "image": getattr(container, "image", None),
            "queue": queue,
            "roles": {"worker": {"replicas": workers, **({"resources": dict(resources)} if resources else {})}},
            **({"env": env} if env else {}),
            **({"elasticity": elasticity} if elasticity else {}),
            **({"checkpoint": {"volume": volume}} if volume else {}),
        },
    }


def declared(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """A component's outputs as KFP's message to a program names them: parameters, and artifacts with their types."""
    artifacts = {name: each.type.split("@") for name, each in outputs.items() if not is_parameter(each)}
    return {
        "parameters": [name for name, each in outputs.items() if is_parameter(each)],
        "artifacts": {
            name: {"schemaTitle": title, "schemaVersion": version} for name, (title, version) in artifacts.items()
        },
    }


def words_of(source: Any) -> list[str]:
    """A component's command and arguments, placeholders as they stand in a compiled pipeline."""
    channels = {
        name: pipeline_channel.create_pipeline_channel(
            name=name, channel_type=each.type, is_artifact_list=each.is_artifact_list
        )
        for name, each in (source.inputs or {}).items()
    }
    with base_component.BlockPipelineTaskRegistration():
        container = dsl.PipelineTask(source, channels).container_spec
    return [*(container.command or ()), *(container.args or ())]


def component_problems(source: Any, volume: Optional[str]) -> Iterator[Problem]:
    """What of a component cannot be carried over."""
    container = source.implementation.container
    if container is None:
        kind = "an importer" if source.implementation.importer else "a pipeline"
        yield Problem("component", f"is {kind}: it has no program", "wrap the component that trains")
        return
    words = words_of(source)
    for found in unknown_placeholders(words):
        yield Problem("component.command", f"{found} is filled in by nobody within a command", "make it an input")
    if not words:
        yield Problem("component.command", "is missing: KFP does not run an image's entry point", "say it")
    if not isinstance(container.image, str) or "{{" in container.image:
        yield Problem("component.image", "is known in the run only", "name the image")
    for key, value in (container.env or {}).items():
        if not isinstance(value, str) or "{{$" in value:
            yield Problem(f"component.env.{key}", "is a placeholder, which KFP fills in in commands alone", "an input")
    yield from _input_problems(source.inputs or {})
    reached = [name for name, each in (source.inputs or {}).items() if not is_parameter(each)]
    reached += source.outputs or {}
    if volume is None and reached:
        why = f"is missing: {', '.join(reached)} can be passed on by nothing else"
        yield Problem("volume", why, "the name of a PersistentVolumeClaim")


def _input_problems(inputs: Mapping[str, Any]) -> Iterator[Problem]:
    for name, each in inputs.items():
        path = f"component.{name}"
        if type_utils.is_task_final_status_type(each.type):
            yield Problem(path, "is a final status, which an exit task alone has", "leave it out")
        elif type_utils.is_task_config_type(each.type):
            yield Problem(path, "is a TaskConfig, which a component has that starts others", "resources= and spec=")
        elif name.startswith(PREFIX):
            yield Problem(path, f"names that begin with {PREFIX} are taken", "another name")


def argument_problems(spec: Mapping[str, Any], workers: Any) -> Iterator[Problem]:
    """What is wrong with the arguments beyond what a TrainingJob says of them."""
    for key in _SAID:
        if key in spec:
            yield Problem(f"spec.{key}", "is what the component or another argument says", "leave it out")
    framework = spec.get("framework", "custom")
    if framework not in _FRAMEWORKS:
        words = f"{framework} has other roles beside its workers"
        yield Problem("spec.framework", words, f"one of {', '.join(_FRAMEWORKS)}, or elastic_training")
    if isinstance(workers, pipeline_channel.PipelineChannel):
        yield Problem("workers", "is known in the run only", "a number, or a range")


def is_parameter(each: Any) -> bool:
    """Whether an input or output is a parameter, not an artifact."""
    return bool(type_utils.is_parameter_type(each.type))
