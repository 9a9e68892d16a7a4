# SPDX-License-Identifier: Apache-2.0
"""`from_component` gives something that is placed in a pipeline like the component itself.

kfp reads annotations as objects: no `from __future__ import annotations` here.
"""

import json
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from kfp import compiler, components, dsl
from kfp.dsl.types import type_utils

from kfp_volcano import from_component
from kfp_volcano.errors import SpecError


@dsl.component(base_image="train:1", install_kfp_package=False)
def train(
    lr: float,
    data: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
    note: Optional[str] = None,  # noqa: UP045 - kfp reads no `X | None`
    epochs: int = 3,
) -> float:
    """Trains."""
    return lr


@dsl.container_component
def convert(text: str, data: dsl.Input[dsl.Dataset], out: dsl.Output[dsl.Model], count: dsl.OutputPath(int)):  # type: ignore[no-untyped-def,valid-type]
    return dsl.ContainerSpec(image="convert:1", command=["convert", data.path], args=["--to", out.path, text, count])


@dsl.component(base_image="x", install_kfp_package=False)
def prepare(data: dsl.Output[dsl.Dataset]) -> None:
    pass


@dsl.component(base_image="x", install_kfp_package=False)
def deploy(model: dsl.Input[dsl.Model], score: float = 0.0) -> None:
    pass


def wrapped(component: Any = train, **arguments: Any) -> Any:
    """With what is always needed."""
    return from_component(component, **{"workers": 2, "volume": "shared", "queue": "research", **arguments})


def compiled(pipeline: Any, path: Path) -> dict[str, Any]:
    """The IR of a pipeline."""
    compiler.Compiler().compile(pipeline, str(path))
    components.load_component_from_file(str(path))
    ir: dict[str, Any] = next(yaml.safe_load_all(path.read_text()))
    return ir


def described(ir: dict[str, Any], name: str) -> dict[str, Any]:
    """What the step that creates the Job is told of the component."""
    (text,) = [
        word.removeprefix("--component=")
        for label, executor in ir["deploymentSpec"]["executors"].items()
        for word in executor["container"]["args"]
        if label.startswith(f"exec-{name}-submit") and word.startswith("--component=")
    ]
    told: dict[str, Any] = json.loads(text)
    return told


def test_it_has_the_components_inputs_and_outputs_and_runs_its_image_and_command(tmp_path: Path) -> None:
    """Downstream tasks take the outputs as they would the component's; the workers run what the component runs."""
    place = wrapped(resources={"cpu": 4, "gpu": 1}, spec={"framework": "pytorch", "faults": {"retries": 1}})

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        trained = place(lr=0.1, data=prepare().outputs["data"])
        deploy(model=trained.outputs["model"], score=trained.outputs["Output"])

    ir = compiled(pipeline, tmp_path / "p.yaml")
    told = described(ir, "train")
    container = train.component_spec.implementation.container
    assert told["command"] == [*container.command, *container.args]
    assert told["spec"]["spec"]["image"] == "train:1"
    assert told["spec"]["spec"]["roles"]["worker"] == {"replicas": 2, "resources": {"cpu": 4, "gpu": 1}}
    assert told["outputs"]["parameters"] == ["Output"]
    assert told["outputs"]["artifacts"] == {"model": {"schemaTitle": "system.Model", "schemaVersion": "0.0.1"}}
    outputs = ir["components"]["comp-train"]["outputDefinitions"]
    assert set(outputs["artifacts"]) == {"model"}
    assert set(outputs["parameters"]) == {"Output"}


@pytest.mark.parametrize("loaded", [False, True], ids=["decorated", "from YAML"])
def test_a_container_component_keeps_its_placeholders(loaded: bool, tmp_path: Path) -> None:
    """They are filled in when the run knows the values."""
    component = convert
    if loaded:
        compiler.Compiler().compile(convert, str(tmp_path / "convert.yaml"))
        component = components.load_component_from_file(str(tmp_path / "convert.yaml"))
    place = wrapped(component)

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        place(text="t", data=prepare().outputs["data"])

    assert described(compiled(pipeline, tmp_path / "p.yaml"), "convert")["command"] == [
        "convert",
        "{{$.inputs.artifacts['data'].path}}",
        "--to",
        "{{$.outputs.artifacts['out'].path}}",
        "{{$.inputs.parameters['text']}}",
        "{{$.outputs.parameters['count'].output_file}}",
    ]


def test_kfp_fills_in_nothing_of_what_describes_the_component(tmp_path: Path) -> None:
    """The description travels in the step's arguments, where KFP looks for placeholders, and its runner for python3."""
    place = wrapped()

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        place(lr=0.1, data=prepare().outputs["data"])

    executors = compiled(pipeline, tmp_path / "p.yaml")["deploymentSpec"]["executors"]
    (args,) = [each["container"]["args"] for label, each in executors.items() if label == "exec-train-submit"]
    (text,) = [word for word in args if word.startswith("--component=")]
    assert "{{$" not in text
    assert "python3" not in text


@pytest.mark.parametrize(
    "arguments",
    [{"lr": 0.1}, {"lr": 0.1, "data": "", "nonsense": 1}, {"lr": ["no"], "data": ""}, {"lr": 0.1, "data": 3}],
)
def test_arguments_are_checked_as_the_component_checks_them(arguments: dict[str, Any]) -> None:
    """What the component refuses its wrapping refuses, in the same words."""
    refusals = []
    for place in (train, wrapped()):

        def pipeline(place: Any = place) -> None:
            data = prepare().outputs["data"]
            place(**{key: data if value == "" else value for key, value in arguments.items()})

        with pytest.raises((TypeError, type_utils.InconsistentTypeException)) as caught:
            dsl.pipeline(lambda: pipeline(), name="p")  # noqa: PLW0108 - kfp takes parameters for inputs
        refusals.append(str(caught.value))
    assert refusals[0] == refusals[1]


def test_an_optional_input_that_is_absent_is_absent_for_the_component(tmp_path: Path) -> None:
    """KFP has no way to pass nothing from one pipeline to another."""
    place = wrapped()

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        place(lr=0.1, data=prepare().outputs["data"])
        place(lr=0.1, data=prepare().outputs["data"], note="n")

    ir = compiled(pipeline, tmp_path / "p.yaml")
    inputs = [set(ir["components"][name]["inputDefinitions"]["parameters"]) for name in ("comp-train", "comp-train-2")]
    assert inputs == [{"lr", "epochs"}, {"lr", "epochs", "note"}]


def test_a_component_that_is_given_artifacts_alone_is_given_the_run_too(tmp_path: Path) -> None:
    """KFP's local runner passes a pipeline no artifacts where there is no parameter."""

    @dsl.component(base_image="x", install_kfp_package=False)
    def look(data: dsl.Input[dsl.Dataset], deep: bool = False) -> None:
        pass

    place = wrapped(look)

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        place(data=prepare().outputs["data"])

    tasks = compiled(pipeline, tmp_path / "p.yaml")["root"]["dag"]["tasks"]
    assert tasks["look"]["inputs"]["parameters"]


def test_the_steps_that_carry_files_have_the_volume(tmp_path: Path) -> None:
    """The same claim that the workers mount, at the same place."""
    place = wrapped()

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        place(lr=0.1, data=prepare().outputs["data"])

    compiler.Compiler().compile(pipeline, str(tmp_path / "p.yaml"))
    _, platform = yaml.safe_load_all((tmp_path / "p.yaml").read_text())
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    claims = {name: each["pvcMount"][0]["pvcNameParameter"] for name, each in executors.items()}
    shared = {"runtimeValue": {"constant": "shared"}}
    assert claims == {
        "exec-train-submit": shared,
        "exec-train-collect": shared,
        "exec-conclude-job": {"componentInputParameter": "volume"},
    }
    assert {each["pvcMount"][0]["mountPath"] for each in executors.values()} == {"/kfp-volcano/volume"}


@dsl.pipeline(name="inner")
def inner() -> None:
    prepare()


@dsl.component(base_image="x", install_kfp_package=False)
def ending(status: dsl.PipelineTaskFinalStatus, config: dsl.TaskConfig, kfp_volcano_x: str = "") -> None:
    pass


@dsl.container_component
def placed() -> dsl.ContainerSpec:
    return dsl.ContainerSpec(image="i", command=["x", dsl.PIPELINE_JOB_ID_PLACEHOLDER, dsl.WORKSPACE_PATH_PLACEHOLDER])


@dsl.container_component
def empty() -> dsl.ContainerSpec:
    return dsl.ContainerSpec(image="i")


@pytest.mark.parametrize(
    ("component", "arguments", "words"),
    [
        (inner, {}, ["component", "pipeline"]),
        (len, {}, ["decorate"]),
        (ending, {}, ["component.status", "component.config", "component.kfp_volcano_x"]),
        (placed, {}, ["pipeline_job_uuid", "workspace_path"]),
        (empty, {}, ["component.command"]),
        (train, {"volume": None}, ["volume", "data", "model", "Output"]),
        (train, {"workers": 0, "resources": {"cpuu": 1}}, ["spec.roles.worker.replicas", "cpuu"]),
        (train, {"spec": {"framework": "mpi", "image": "x"}}, ["spec.framework", "spec.image"]),
        (train, {"workers": {"min": 2, "max": 4}}, ["strategy"]),
    ],
    ids=[
        "a pipeline", "a function", "inputs of other steps", "placeholders", "no command", "no volume", "the Job",
        "arguments", "a range without a strategy",
    ],
)  # fmt: skip
def test_what_cannot_be_carried_over_is_refused_at_once(
    component: Any, arguments: dict[str, Any], words: list[str]
) -> None:
    """When the pipeline is defined, each thing with its place."""
    with pytest.raises(SpecError) as caught:
        wrapped(component, **arguments)
    for word in words:
        assert word in str(caught.value)


def test_a_range_of_workers_is_followed_through_its_resizes(tmp_path: Path) -> None:
    """The graph of an elastic training, with as many rounds as are asked for."""
    place = wrapped(workers={"min": 2, "max": 4}, spec={"elasticity": {"strategy": "restart"}}, rounds=3)

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        place(lr=0.1, data=prepare().outputs["data"])

    names = {
        task["taskInfo"]["name"]
        for component in compiled(pipeline, tmp_path / "p.yaml")["components"].values()
        for task in component.get("dag", {}).get("tasks", {}).values()
    }
    assert {"submit", "train-1", "resize-1", "train-3", "collect", "conclude"} <= names
