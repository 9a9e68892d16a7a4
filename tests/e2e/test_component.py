# SPDX-License-Identifier: Apache-2.0
"""KFP components as the workers of a Job, in a pipeline that makes their inputs and uses their outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Run

PIPELINE = """
from kfp import dsl
from kfp_volcano import from_component, training_task

@dsl.component(install_kfp_package=False)
def prepare(rows: int, data: dsl.Output[dsl.Dataset]):
    with open(data.path, "w") as file:
        file.write(" ".join(map(str, range(rows))))
    data.metadata["rows"] = rows

@dsl.component(install_kfp_package=False)
def train(
    lr: float, name: str, data: dsl.Input[dsl.Dataset], model: dsl.Output[dsl.Model], fails: bool = False
) -> float:
    import os
    index, workers = os.environ["KFP_VOLCANO_TASK_INDEX"], os.environ["KFP_VOLCANO_WORKERS"]
    assert not fails, "the data is gone"
    total = sum(map(int, open(data.path).read().split()))
    print(f"worker {index} of {workers} sums to {total}", flush=True)
    model.metadata["worker"] = index
    with open(model.path, "w") as file:
        file.write(f"{name} {total} {int(data.metadata['rows'])}")
    return total * lr

@dsl.container_component
def convert(model: dsl.Input[dsl.Model], folder: dsl.Output[dsl.Model], words: dsl.OutputPath(str), to: str = "onnx"):
    script = 'mkdir -p "$1" && cp "$0" "$1/model.$3" && echo $KFP_VOLCANO_TASK_INDEX > "$1/by" && printf %s "$4" > "$2"'
    given = dsl.IfPresentPlaceholder(input_name="to", then=dsl.ConcatPlaceholder(["to ", to]), else_="as it is")
    args = [model.path, folder.path, words, to, given]
    return dsl.ContainerSpec(image="busybox", command=["sh", "-c", script], args=args)

@dsl.component(install_kfp_package=False)
def check(score: float, words: str, model: dsl.Input[dsl.Model], folder: dsl.Input[dsl.Model]):
    import pathlib
    name = "$(HOME) 'q\\" $$"
    assert score == 4.5, score
    assert words == "to onnx", words
    assert model.metadata["worker"] == "0", model.metadata
    assert pathlib.Path(model.path).read_text() == f"{name} 45 10"
    assert pathlib.Path(folder.path, "model.onnx").read_text() == f"{name} 45 10"
    assert pathlib.Path(folder.path, "by").read_text() == "0\\n"

train_on_two = from_component(train, workers=2, resources={"cpu": 1, "gpu": 1}, queue="research", volume="shared")
convert_on_two = from_component(convert, workers=2, queue="research", volume="shared")
PLAIN = {
    "apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": "plain"},
    "spec": {
        "framework": "custom", "image": "i", "command": ["sh", "-c", "echo task $KFP_VOLCANO_TASK_INDEX"],
        "queue": "research", "roles": {"worker": {"replicas": 2}},
    },
}

@dsl.pipeline(name="p")
def pipeline(fails: bool = False):
    data = prepare(rows=10)
    trained = train_on_two(lr=0.1, name="$(HOME) 'q\\" $$", data=data.outputs["data"], fails=fails)
    converted = convert_on_two(model=trained.outputs["model"])
    check(
        score=trained.outputs["Output"], model=trained.outputs["model"],
        folder=converted.outputs["folder"], words=converted.outputs["words"],
    )
    training_task(PLAIN).after(converted)
"""


@pytest.fixture(name="pipeline")
def _pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.py"
    path.write_text(PIPELINE)
    return path


@pytest.mark.slow
def test_components_run_as_workers_and_their_outputs_are_used(start: Callable[..., Run], pipeline: Path) -> None:
    """A Python component and a container component, on two workers each: the first worker's outputs go on."""
    run = start(pipeline=pipeline)
    assert run.end() == 0, (run.out / "pipeline.log").read_text()[-4000:]
    logs = "".join(path.read_text() for path in run.out.glob("logs/**/*.log"))
    for line in ("worker 0 of 2 sums to 45", "worker 1 of 2 sums to 45", "task 0", "task 1"):
        assert line in logs
    reports = [run.out / "report.html", *run.out.glob("*/report.html")]
    assert len(reports) == 3, "one for each training of the run"
    assert all(f"report:  {report}" in run.output() for report in reports)
    run.gone()


@pytest.mark.slow
def test_a_failing_worker_fails_the_run_with_its_last_words(start: Callable[..., Run], pipeline: Path) -> None:
    """As a failing component would, with the worker named."""
    run = start("--param", "fails=true", pipeline=pipeline)
    assert run.end() == 1
    assert "AssertionError: the data is gone" in run.output()
    assert "core-" in run.output()
    run.gone()
