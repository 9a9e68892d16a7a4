# SPDX-License-Identifier: Apache-2.0
"""`from_component`: a KFP component that runs as the workers of a Volcano Job."""

import collections
import inspect
from collections.abc import Mapping
from typing import Any, Optional, Union

from kfp import dsl
from kfp.dsl import base_component, graph_component, structures

from kfp_volcano.components.step import step_command
from kfp_volcano.components.wrapped import PREFIX, quoted
from kfp_volcano.errors import SpecError
from kfp_volcano.pipelines.given import folder_here
from kfp_volcano.pipelines.segments import always_run, following, outside_of_any_pipeline
from kfp_volcano.pipelines.volumes import mount
from kfp_volcano.pipelines.workers import (
    argument_problems,
    component_problems,
    declared,
    is_parameter,
    training_job_of,
    words_of,
)
from kfp_volcano.platform_files import resource_profiles
from kfp_volcano.schemas.validation import Unknown, check_known

__all__ = ["WrappedComponent", "from_component"]

_RUN_ID = f"{PREFIX}run_id"
_HIDDEN = (_RUN_ID, f"{PREFIX}task", f"{PREFIX}instance", f"{PREFIX}folder")
"""What the step that creates the Job is given beside the component's inputs."""
_STEP = "kfp_volcano.components.wrapped"


class _Step(base_component.BaseComponent):
    """A step that has a component's own inputs or outputs."""

    def execute(self, **_: Any) -> None:
        """Run it by itself, which KFP does with Python components alone."""
        raise NotImplementedError("a step runs in a pipeline")


class WrappedComponent(graph_component.GraphComponent):
    """A component that runs as workers: to KFP a pipeline, to its user the component."""

    def __init__(
        self, source: Any, described: Mapping[str, Any], *, follow: Any, volume: Optional[str], folder: str
    ) -> None:
        self._source = source
        self._described = described
        self._follow = follow
        self._volume = volume
        self._folder = folder
        self._graphs: dict[tuple[str, ...], graph_component.GraphComponent] = {}
        super().__init__(self._interface(list(source.inputs or {})), self._body(list(source.inputs or {})))

    def __call__(self, *args: Any, **kwargs: Any) -> dsl.PipelineTask:
        """Place it in the pipeline being defined; the task's outputs are the component's.

        An input that may be absent, and is, must not be named at all: KFP has no word for that between two pipelines.
        And its local runner gives a pipeline nothing that is given artifacts alone.
        """
        inputs = self._source.inputs or {}
        absent = {name for name, each in inputs.items() if each.optional and each.default is None} - kwargs.keys()
        names = [name for name in inputs if name not in absent]
        if not any(name in inputs and is_parameter(inputs[name]) for name in kwargs):
            names.append(_RUN_ID)
            kwargs[_RUN_ID] = dsl.PIPELINE_JOB_ID_PLACEHOLDER
        elif not absent:
            return super().__call__(*args, **kwargs)
        if tuple(names) not in self._graphs:
            with outside_of_any_pipeline():
                graph = graph_component.GraphComponent(self._interface(names), self._body(names))
            self._graphs[tuple(names)] = graph
        return self._graphs[tuple(names)](*args, **kwargs)

    def _interface(self, names: list[str]) -> Any:
        return structures.ComponentSpec(
            name=self._source.name,
            description=self._source.description,
            inputs={name: self._input(name) for name in names},
            outputs=dict(self._source.outputs or {}),
            implementation=structures.Implementation(),
        )

    def _input(self, name: str) -> Any:
        return structures.InputSpec(type="String") if name in _HIDDEN else self._source.inputs[name]

    def _body(self, names: list[str]) -> Any:
        """Create the Job, follow it, take in what it leaves; as a function of the inputs of those names."""

        def body(*channels: Any) -> Any:
            hidden = (
                dsl.PIPELINE_JOB_ID_PLACEHOLDER,
                dsl.PIPELINE_TASK_NAME_PLACEHOLDER,
                dsl.PIPELINE_TASK_ID_PLACEHOLDER,
                self._folder,
            )
            ours = dict(zip(_HIDDEN, hidden, strict=True))
            submit = _Step(self._submit_spec(names))(**{**ours, **dict(zip(names, channels, strict=True))})
            self._mount(always_run(submit, "submit"))
            training = self._follow(job=submit.output).set_display_name("training")
            if not self._source.outputs:
                return None
            collect = _Step(self._collect_spec())(**{f"{PREFIX}job": submit.output}).after(training)
            self._mount(always_run(collect, "collect"))
            return collections.namedtuple("Outputs", list(self._source.outputs))(**collect.outputs)  # noqa: PYI024

        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # kfp reads the inputs from it
        return body

    def _submit_spec(self, names: list[str]) -> Any:
        component = f"--component={quoted(self._described)}"
        return structures.ComponentSpec(
            name=f"{self._source.name}-submit",
            inputs={name: self._input(name) for name in (*names, *_HIDDEN)},
            outputs={"Output": structures.OutputSpec(type="String")},
            implementation=structures.Implementation(container=step_command(_STEP, "submit", component)),
        )

    def _collect_spec(self) -> Any:
        return structures.ComponentSpec(
            name=f"{self._source.name}-collect",
            inputs={f"{PREFIX}job": structures.InputSpec(type="String")},
            outputs=dict(self._source.outputs),
            implementation=structures.Implementation(container=step_command(_STEP, "collect")),
        )

    def _mount(self, task: dsl.PipelineTask) -> None:
        """Give a step the workers' volume, if they have one."""
        if self._volume:
            mount(task, self._volume)


def from_component(
    component: base_component.BaseComponent,
    *,
    workers: Union[int, Mapping[str, Any]],
    resources: Optional[Mapping[str, Any]] = None,
    queue: str = "default",
    volume: Optional[str] = None,
    namespace: Optional[str] = None,
    spec: Optional[Mapping[str, Any]] = None,
    rounds: int = 4,
    folder: Optional[str] = None,
) -> WrappedComponent:
    """Let an existing KFP component run as the workers of a Job.

    Each worker runs the component's image and command with the values of the inputs filled in; input artifacts are laid
    down on the volume, and there each worker has its outputs to itself. Those of the first worker (`core-0`) are the
    outputs of the task.

    Args:
        component: Made by `@dsl.component` or `@dsl.container_component`, or loaded from YAML.
        workers: Their number, or a range as in `replicas` of a TrainingJob: `{"min": 2, "max": 8}`.
        resources: What one worker asks for, as in a TrainingJob: `{"cpu": 4, "gpu": 1}`.
        queue: The Volcano queue.
        volume: A PersistentVolumeClaim that the workers and the steps have in common; needed for artifacts and outputs.
        namespace: The Job's namespace; by default that of the run's steps, which share the volume only there.
        spec: Anything else of a TrainingJob's `spec`: `framework`, `elasticity`, `env`, `placement`, `faults` …
        rounds: How many segments the graph shows where the number of workers is a range.
        folder: Where the command runs on the embedded cluster.

    Returns:
        To be called in a pipeline like the component: with the same inputs, of the same types, and the same outputs.

    Raises:
        SpecError: Lists everything of the component that cannot be carried over, and what is wrong with the Job.
    """
    if not isinstance(component, base_component.BaseComponent):
        raise SpecError(f"is a {type(component).__name__}, not a KFP component: decorate it", source="component")
    source, further = component.component_spec, spec or {}
    problems = [*component_problems(source, volume), *argument_problems(further, workers)]
    job = training_job_of(source, workers, resources, queue, volume, namespace, further)
    if not problems:
        with_command = {**job, "spec": {**job["spec"], "command": Unknown()}}
        problems += check_known(with_command, source="the component's Job", profiles=resource_profiles())
    if problems:
        raise SpecError(problems, source=f"from_component({source.name})")
    described = {"spec": job, "command": words_of(source), "outputs": declared(source.outputs or {})}
    follow = following(1 if isinstance(workers, int) else rounds, volume or "")
    with outside_of_any_pipeline():
        return WrappedComponent(source, described, follow=follow, volume=volume, folder=folder_here(folder))
