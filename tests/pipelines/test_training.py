# SPDX-License-Identifier: Apache-2.0
"""`elastic_training` lays out a DAG that a backend takes, and checks what it can.

kfp reads annotations as objects: no `from __future__ import annotations` here.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, components, dsl

from kfp_volcano import elastic_training, training_task
from kfp_volcano.components.task_config import said
from kfp_volcano.errors import SpecError

SPEC: dict[str, Any] = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": "vision"},
    "spec": {
        "framework": "pytorch",
        "image": "train:1",
        "command": ["python", "train.py"],
        "queue": "research",
        "roles": {"worker": {"replicas": {"min": 2, "max": 4}, "resources": {"gpu": 1}}},
        "elasticity": {"strategy": "live", "batch": {"global": 64}},
        "checkpoint": {"volume": "checkpoints"},
    },
}


def compiled(pipeline: Any, path: Path) -> dict[str, Any]:
    """The IR of a pipeline, after KFP's own loader has taken it."""
    compiler.Compiler().compile(pipeline, str(path))
    components.load_component_from_file(str(path))
    ir: dict[str, Any] = yaml.safe_load(path.read_text())
    return ir


def compiled_first(pipeline: Any, path: Path) -> dict[str, Any]:
    """The IR of a pipeline that has settings for Kubernetes beside it."""
    compiler.Compiler().compile(pipeline, str(path))
    ir: dict[str, Any] = next(yaml.safe_load_all(path.read_text()))
    return ir


def dags(ir: dict[str, Any]) -> list[dict[str, Any]]:
    """All DAGs of an IR."""
    return [ir["root"]["dag"], *(c["dag"] for c in ir["components"].values() if "dag" in c)]


@pytest.mark.parametrize("rounds", [1, 2, 4, 12])
def test_the_dag_has_a_train_step_for_each_round_and_a_resize_between_two(rounds: int, tmp_path: Path) -> None:
    """submit, N trains, N - 1 resizes, collect, conclude; names in the UI read as the story of the run."""

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        elastic_training(SPEC, rounds=rounds)

    names = {
        task["taskInfo"]["name"]
        for dag in dags(compiled(pipeline, tmp_path / "p.yaml"))
        for task in dag["tasks"].values()
    }
    steps = {name for name in names if re.fullmatch(r"(submit|train-\d+|resize-\d+|collect|conclude)", name)}
    expected = {"submit", "collect", "conclude", *(f"train-{n}" for n in range(1, rounds + 1))}
    assert steps == expected | {f"resize-{n}" for n in range(1, rounds)}


def test_no_step_is_ever_cached(tmp_path: Path) -> None:
    """A cache hit would skip the training."""

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        elastic_training(SPEC, rounds=3)

    ir = compiled(pipeline, tmp_path / "p.yaml")
    for dag in dags(ir):
        for name, task in dag["tasks"].items():
            if "executorLabel" in ir["components"][task["componentRef"]["name"]]:
                assert not task.get("cachingOptions", {}).get("enableCache"), name


def test_conclude_is_the_exit_task_of_what_follows_the_job(tmp_path: Path) -> None:
    """It runs after success, failure and Terminate alike, and knows the Job from its own pipeline's input."""

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        elastic_training(SPEC)

    ir = compiled(pipeline, tmp_path / "p.yaml")
    exits = [
        (name, task["inputs"]["parameters"]["job"])
        for dag in dags(ir)
        for name, task in dag["tasks"].items()
        if task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
    ]
    assert exits == [("conclude-job", {"componentInputParameter": "job"})]


def test_outputs_reach_later_tasks_and_loops_and_conditions_may_hold_a_training(tmp_path: Path) -> None:
    """A training is placed like any task."""

    @dsl.component(base_image="steps:1")
    def deploy(model: dsl.Input[dsl.Model], result: str) -> None:
        pass

    @dsl.pipeline(name="p")
    def pipeline(go: str) -> None:
        with dsl.ParallelFor(["a", "b"]) as queue:
            trained = elastic_training({**SPEC, "spec": {**SPEC["spec"], "queue": queue}}, rounds=2)
            deploy(model=trained.outputs["model"], result=trained.outputs["Output"])
        with dsl.If(go == "yes"):
            single = training_task(SPEC)
            deploy(model=single.outputs["model"], result=single.outputs["Output"]).after(single)

    assert compiled(pipeline, tmp_path / "p.yaml")


@pytest.mark.parametrize("place", [elastic_training, training_task])
def test_what_is_set_on_the_training_is_passed_on_by_the_step_that_creates_the_job(place: Any, tmp_path: Path) -> None:
    """Resources, environment and what `kfp.kubernetes` sets stand on it, and that they are to be passed on."""

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        task = place(SPEC).set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(8).set_env_variable("A", "1")
        task.platform_config["kubernetes"] = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
        place(SPEC)

    compiler.Compiler().compile(pipeline, str(tmp_path / "p.yaml"))
    ir, platform = yaml.safe_load_all((tmp_path / "p.yaml").read_text())
    name = "submit-job" if place is elastic_training else "run-training"
    container = ir["deploymentSpec"]["executors"][f"exec-{name}"]["container"]
    assert container["env"] == [{"name": "A", "value": "1"}]
    assert container["resources"]["accelerator"]["resourceCount"] == "8"
    passed = {each["field"] for each in ir["components"][f"comp-{name}"]["taskConfigPassthroughs"]}
    assert passed == {field.name for field in dsl.TaskConfigField}
    assert "taskConfigPassthroughs" not in ir["components"][f"comp-{name}-2"], "nothing is set on the second"
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert executors == {f"exec-{name}": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}


def test_each_training_of_a_run_is_told_apart(tmp_path: Path) -> None:
    """By its task's name, and in a loop by the iteration's DAG: what a backend gives no two tasks alike."""

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        elastic_training(SPEC)
        elastic_training(SPEC)

    tasks = compiled(pipeline, tmp_path / "p.yaml")["root"]["dag"]["tasks"]
    for name in ("submit-job", "submit-job-2"):
        inputs = tasks[name]["inputs"]["parameters"]
        assert inputs["task"]["runtimeValue"]["constant"] == dsl.PIPELINE_TASK_NAME_PLACEHOLDER
        assert inputs["instance"]["runtimeValue"]["constant"] == dsl.PIPELINE_TASK_ID_PLACEHOLDER


def test_any_value_may_be_a_parameter_or_an_output(tmp_path: Path) -> None:
    """Values known only in the run pass the check at compile time and travel beside the spec."""

    @dsl.component(base_image="steps:1")
    def choose() -> int:
        return 4

    @dsl.pipeline(name="p")
    def pipeline(queue: str, epochs: int = 3) -> None:
        most = choose().output
        spec = {**SPEC, "spec": {**SPEC["spec"], "queue": queue, "command": ["python", "t.py", f"--epochs={epochs}"]}}
        spec["spec"]["roles"] = {"worker": {"replicas": {"min": 2, "max": most}, "resources": {"gpu": 1}}}
        elastic_training(spec)

    ir = compiled(pipeline, tmp_path / "p.yaml")
    (submit,) = (t for dag in dags(ir) for name, t in dag["tasks"].items() if name == "submit-job")
    spec = json.loads(submit["inputs"]["parameters"]["spec"]["runtimeValue"]["constant"])
    assert spec["spec"]["command"][2] == {"$join": ["--epochs=", {"$type": "NUMBER_INTEGER", "$value": 0}]}
    assert spec["spec"]["queue"] == {"$type": "STRING", "$value": 1}
    assert spec["spec"]["roles"]["worker"]["replicas"]["max"] == {"$type": "NUMBER_INTEGER", "$value": 2}


def test_what_is_known_is_checked_when_the_pipeline_is_defined() -> None:
    """Every problem at once, before anything runs."""
    spec = {**SPEC, "spec": {**SPEC["spec"], "quue": "x", "roles": {"worker": {"replicas": {"min": 4, "max": 2}}}}}
    with pytest.raises(SpecError) as caught:

        @dsl.pipeline(name="p")
        def pipeline() -> None:
            elastic_training(spec)

    assert len(caught.value.problems) >= 2


def test_a_spec_file_is_read_and_its_absence_named(tmp_path: Path) -> None:
    """A path stands for the file's content."""
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(SPEC))

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        elastic_training(tmp_path / "job.yaml", rounds=1)

    compiled(pipeline, tmp_path / "p.yaml")
    assert str(tmp_path) not in (tmp_path / "p.yaml").read_text(), "a compiled pipeline names no local path"
    with pytest.raises(SpecError, match=r"absent\.yaml"):
        dsl.pipeline(lambda: elastic_training(tmp_path / "absent.yaml"), name="q")


def test_rounds_are_bounded() -> None:
    """A graph of hundreds of nested segments is refused with a word, not compiled for minutes."""
    with pytest.raises(SpecError, match="rounds"):
        elastic_training(SPEC, rounds=0)
    with pytest.raises(SpecError, match="rounds"):
        elastic_training(SPEC, rounds=99)


def test_the_platforms_profiles_are_known_where_a_pipeline_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compiled holds their resources, for where it runs nobody may know the names."""
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text("{apiVersion: kfp-volcano/v1, kind: ResourceProfiles, profiles: {dgx: {cpu: 96, gpu: 8}}}")
    worker = {"worker": {"replicas": 2, "resources": {"profile": "dgx"}}}

    def text() -> str:
        @dsl.pipeline(name="p")
        def pipeline() -> None:
            training_task({**SPEC, "spec": {**SPEC["spec"], "roles": worker}})

        return json.dumps(compiled(pipeline, tmp_path / "p.yaml")).replace("\\", "")

    with pytest.raises(SpecError, match="there is no profile dgx"):
        text()
    monkeypatch.setenv("KFP_VOLCANO_PROFILES", str(profiles))
    assert "dgx" not in text()
    assert '"gpu": 8' in text()


def without_namespace(**spec: Any) -> dict[str, Any]:
    """The spec for the namespace of whichever run."""
    return {**SPEC, "metadata": {"name": "digits"}, "spec": {**SPEC["spec"], **spec}}


def claims(pipeline: Any, path: Path) -> dict[str, Any]:
    """Which claim each executor of a compiled pipeline mounts at the workers' place."""
    compiler.Compiler().compile(pipeline, str(path))
    components.load_component_from_file(str(path))
    _, *platform = yaml.safe_load_all(path.read_text())
    executors = platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if platform else {}
    return {
        name: mount["pvcNameParameter"]
        for name, each in executors.items()
        for mount in each["pvcMount"]
        if mount["mountPath"] == "/kfp-volcano/volume"
    }


def test_the_steps_that_read_the_checkpoint_volume_mount_it(tmp_path: Path) -> None:
    """`conclude` takes the claim as an input of the pipeline it ends, since it may be known in the run only."""

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        elastic_training(without_namespace())

    assert claims(pipeline, tmp_path / "p.yaml") == {
        "exec-collect-results": {"runtimeValue": {"constant": "checkpoints"}},
        "exec-conclude-job": {"componentInputParameter": "volume"},
    }


def test_a_claim_may_be_a_parameter_and_beside_a_spec_that_is_one(tmp_path: Path) -> None:
    """Wherever the training stands: in the pipeline itself, under a condition, in a loop."""

    @dsl.pipeline(name="p")
    def pipeline(claim: str, spec: str) -> None:
        elastic_training(without_namespace(checkpoint={"volume": claim}), rounds=1)
        with dsl.If(claim == "x"):
            elastic_training(spec, rounds=1, volume=claim)
        with dsl.ParallelFor(["a", "b"]) as each:
            training_task(spec, volume=each)

    found = claims(pipeline, tmp_path / "p.yaml")
    inputs = {name: each["componentInputParameter"].rstrip("0123456789") for name, each in found.items()}
    assert inputs == {
        "exec-collect-results": "claim",
        "exec-conclude-job": "volume",
        "exec-collect-results-2": "pipelinechannel--claim",
        "exec-conclude-job-2": "volume",
        "exec-run-training": "pipelinechannel--loop-item-param-",
    }


@pytest.mark.parametrize("place", [elastic_training, training_task])
@pytest.mark.parametrize(
    ("spec", "said"), [(SPEC, None), (without_namespace(), ""), (without_namespace(checkpoint={"volume": "a"}), "b")]
)
def test_steps_mount_what_they_certainly_can_or_are_told_to(
    place: Any, spec: dict[str, Any], said: Any, tmp_path: Path
) -> None:
    """A spec that names a namespace may name another than its run's, where the claim is not."""

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        place(spec, volume=said)

    found = claims(pipeline, tmp_path / "p.yaml")
    assert bool(found) is bool(said)


def test_the_one_step_keeps_its_volume_whatever_is_passed_on(tmp_path: Path) -> None:
    """What is set on the task is the workers'; without it nothing is passed on, so that the volume is the step's."""

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        training_task(without_namespace())
        training_task(without_namespace()).set_env_variable("A", "1")

    ir = compiled_first(pipeline, tmp_path / "p.yaml")
    assert "taskConfigPassthroughs" not in ir["components"]["comp-run-training"]
    passed = ir["components"]["comp-run-training-2"]["taskConfigPassthroughs"]
    assert [each["field"] for each in passed if each.get("applyToTask")] == ["KUBERNETES_VOLUMES"]


def test_the_workers_are_not_told_of_the_steps_own_mount() -> None:
    """They have the checkpoint volume by the spec; another volume on the task is theirs."""
    own = {"name": "checkpoints", "mountPath": "/kfp-volcano/volume"}
    data = {"name": "data", "mountPath": "/data"}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("checkpoints", "data")]
    config = dsl.TaskConfig(volumes=volumes, volume_mounts=[own, data])
    assert said(config) == {"volumes": volumes[1:], "volume_mounts": [data]}
    assert said(dsl.TaskConfig(volumes=volumes[:1], volume_mounts=[own])) == {}


def test_a_size_that_is_none_is_refused() -> None:
    """Before anything is laid out."""
    with pytest.raises(SpecError, match="copy_up_to"):
        elastic_training(SPEC, copy_up_to="many")
