# SPDX-License-Identifier: Apache-2.0
"""The command line's manners: exit codes, what goes where, every problem named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner, Result

from kfp_volcano import __version__
from kfp_volcano.cli import main
from kfp_volcano.schemas.structure import load_schema

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(name="digits")
def _digits(root: Path) -> Path:
    return root / "pipelines" / "examples" / "digits" / "job.yaml"


def test_version_and_help_go_to_standard_output() -> None:
    """Both are what was asked for, so they are data."""
    assert __version__ in run("--version").stdout
    assert "Exit codes" in run("--help").stdout


@pytest.mark.parametrize(
    "command",
    ["compile", "convert", "demo", "diff", "doctor", "explain", "queues", "render", "run", "validate"],
)
def test_every_command_teaches(command: str) -> None:
    """Each command has a help text that begins with what it does."""
    result = run(command, "--help")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) > 5


def test_render_prints_manifests_that_parse(digits: Path) -> None:
    """Standard output is YAML and nothing else."""
    result = run("render", digits)
    assert result.exit_code == 0, result.stderr
    (job,) = yaml.safe_load_all(result.stdout)
    assert (job["apiVersion"], job["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")


def test_render_starts_with_a_valid_size_only(digits: Path) -> None:
    """A size the spec does not allow is wrong input."""
    assert run("render", digits, "--workers", 4).exit_code == 0
    result = run("render", digits, "--workers", 5)
    assert result.exit_code == 2
    assert "--workers" in result.stderr


def test_validate_says_that_a_spec_is_valid(digits: Path) -> None:
    """A valid spec is summed up in a line."""
    result = run("validate", digits)
    assert result.exit_code == 0
    assert "is valid" in result.stdout


def test_validate_lists_every_problem_with_its_place(digits: Path, tmp_path: Path) -> None:
    """Three mistakes make three problems, and exit code 2."""
    spec = yaml.safe_load(digits.read_text())
    spec["spec"]["quue"] = "x"
    spec["spec"]["roles"]["worker"]["replicas"] = {"min": 8, "max": 2}
    spec["spec"]["elasticity"]["cooldown"] = "soon"
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(spec))
    result = run("validate", path)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    for place in ("quue", "spec.roles.worker.replicas", "spec.elasticity.cooldown"):
        assert place in result.stderr


@pytest.mark.parametrize("content", ["", "[]", "a: [", "\x00", "kind: Job", "{a: 1, a: 2}", "'text'"])
@pytest.mark.parametrize("command", ["validate", "render"])
def test_a_file_that_is_no_spec_is_refused_with_a_word(command: str, content: str, tmp_path: Path) -> None:
    """Whatever the file holds, there is a message and exit code 2, never a traceback."""
    path = tmp_path / "job.yaml"
    path.write_text(content)
    result = run(command, path)
    assert result.exit_code == 2, result.output
    assert str(path) in result.stderr or "spec" in result.stderr
    assert result.stdout == ""


def test_an_absent_file_is_named() -> None:
    """The message names the file."""
    result = run("validate", "absent.yaml")
    assert result.exit_code == 2
    assert "absent.yaml" in result.stderr


PIPELINE = """
from kfp import dsl

@dsl.component(base_image="steps:1")
def step(n: int):
    print(n)

@dsl.pipeline(name="one")
def one(n: int, text: str = "x"):
    step(n=n)
"""


def test_compile_writes_ir_and_keeps_standard_output_clean(tmp_path: Path) -> None:
    """The file is the data."""
    (tmp_path / "p.py").write_text(PIPELINE)
    result = run("compile", tmp_path / "p.py", "-o", tmp_path / "p.yaml")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert yaml.safe_load((tmp_path / "p.yaml").read_text())["pipelineInfo"]["name"] == "one"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "no @dsl.pipeline"),
        ("import absent_module", "absent_module"),
        ("x = (", "SyntaxError"),
        ("raise OSError('no')", "no"),
    ],
)
def test_a_file_without_a_pipeline_is_refused_with_the_reason(content: str, word: str, tmp_path: Path) -> None:
    """The message says what is wrong with the file."""
    (tmp_path / "p.py").write_text(content)
    result = run("compile", tmp_path / "p.py", "-o", tmp_path / "p.yaml")
    assert result.exit_code == 2
    assert word in result.stderr
    assert not (tmp_path / "p.yaml").exists()


def test_all_wrong_parameters_are_named_before_anything_starts(tmp_path: Path) -> None:
    """Unknown, missing and ill-typed ones at once; nothing is created."""
    (tmp_path / "p.py").write_text(PIPELINE)
    result = run("run", tmp_path / "p.py", "--local", "--param", "nn=1", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "--param nn" in result.stderr
    assert "--param n:" in result.stderr
    result = run("run", tmp_path / "p.py", "--local", "--param", "n=many", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "'many'" in result.stderr
    assert not (tmp_path / "out").exists()


def test_run_without_a_place_to_run_says_so(tmp_path: Path) -> None:
    """There is no hidden default."""
    (tmp_path / "p.py").write_text(PIPELINE)
    result = run("run", tmp_path / "p.py")
    assert result.exit_code == 2
    assert "--local" in result.stderr


def test_doctor_names_each_thing_it_looked_for() -> None:
    """One line a finding."""
    result = run("doctor")
    for what in ("python", "kfp", "ray", "torch", "torchft", "memory"):
        assert what in result.stdout


def test_explain_documents_a_field_and_names_what_is_near_a_wrong_one() -> None:
    """As `kubectl explain`: what the field is, and what is below it."""
    shown = run("explain", "spec.elasticity")
    assert shown.exit_code == 0
    assert "strategy <text>" in shown.stdout
    wrong = run("explain", "spec.elastcity")
    assert wrong.exit_code == 2
    assert "did you mean elasticity?" in wrong.stderr


def test_explain_gives_editors_their_schema() -> None:
    """Whole, of any kind, and of no single field."""
    assert json.loads(run("explain", "--schema").stdout) == load_schema("training-job.v1")
    assert json.loads(run("explain", "--schema", "QueueTree").stdout) == load_schema("queue-tree.v1")
    wrong = run("explain", "--schema", "spec")
    assert wrong.exit_code == 2
    assert "TrainingJob, QueueTree" in wrong.stderr


def test_diff_shows_what_a_change_of_the_spec_changes(digits: Path, tmp_path: Path) -> None:
    """A spec differs from itself in nothing, and from one of another queue in the queue."""
    assert run("diff", digits, digits).stdout == ""
    other = tmp_path / "other.yaml"
    other.write_text(digits.read_text().replace("queue: research", "queue: other"))
    assert run("diff", digits, other).stdout == '~ Job.spec.queue: "research" -> "other"\n'


def test_a_platform_has_resource_profiles_of_its_own(digits: Path, tmp_path: Path) -> None:
    """A profile of the platform's file is filled in; one that nobody knows is named, with those that there are."""
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text("{apiVersion: kfp-volcano/v1, kind: ResourceProfiles, profiles: {dgx: {cpu: 96, gpu: 8}}}")
    spec = yaml.safe_load(digits.read_text())
    spec["spec"]["roles"]["worker"]["resources"] = {"profile": "dgx"}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(spec))
    assert "cpu: '96'" in run("render", file, "--profiles", profiles).stdout
    wrong = run("validate", file)
    assert wrong.exit_code == 2
    assert "there is no profile dgx" in wrong.stderr
