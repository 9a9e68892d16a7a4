# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano convert`: what goes where, and what the exit code says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from kfp_volcano.cli import main

JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: mnist}
spec:
  runPolicy: {cleanPodPolicy: None}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: pytorch, image: "mnist:1", command: [python, mnist.py]}]}}
"""


def run(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture(name="another")
def _another(tmp_path: Path) -> Path:
    """Another file, with a job of the same name."""
    path = tmp_path / "another.yaml"
    path.write_text(JOB)
    return path


def test_specs_go_to_standard_output_and_reports_to_standard_error(job: Path, another: Path) -> None:
    """So that the output of a whole folder is a file of YAML."""
    result = run(job, another, "--queue", "research")
    assert result.exit_code == 0
    specs = list(yaml.safe_load_all(result.stdout))
    assert [spec["spec"]["queue"] for spec in specs] == ["research", "research"]
    assert "spec.runPolicy.cleanPodPolicy" in result.stderr


def test_a_folder_gets_a_spec_and_a_report_for_each(job: Path, another: Path, tmp_path: Path) -> None:
    """None is written over; each spec is taken by `validate` and `render`."""
    out = tmp_path / "out" / "deep"
    assert run(job, another, "-o", out).exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "mnist-2.report.md",
        "mnist-2.yaml",
        "mnist.report.md",
        "mnist.yaml",
    ]
    for command in ("validate", "render"):
        assert CliRunner().invoke(main, [command, str(out / "mnist.yaml")]).exit_code == 0


def test_one_refusal_is_exit_code_2_and_the_others_are_done(job: Path, tmp_path: Path) -> None:
    """A file that is not there, one that is no YAML, one without a job."""
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "other.yaml").write_text("kind: ConfigMap")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    names = ("broken.yaml", "other.yaml", "binary.yaml", "absent.yaml")
    result = run(*(tmp_path / name for name in names), job, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert (tmp_path / "out" / "mnist.yaml").exists()
    assert all(f"refused: {tmp_path / name}" in result.stderr for name in names)


def test_standard_input_is_a_file(job: Path) -> None:
    """As kubectl gives it."""
    result = CliRunner().invoke(main, ["convert", "-"], input=job.read_bytes())
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "mnist"
    again = CliRunner().invoke(main, ["validate", "-"], input=result.stdout)
    assert again.exit_code == 0


def test_what_is_passed_over_is_told(job: Path, tmp_path: Path) -> None:
    """It is no refusal."""
    path = tmp_path / "both.yaml"
    path.write_text(f"kind: RayJob\nmetadata: {{name: r}}\n---\n{JOB}")
    result = run(path)
    assert result.exit_code == 0
    assert f"passed over: {path}, document 1: RayJob r is no training job" in result.stderr


def test_a_place_that_cannot_be_written_is_named(job: Path, tmp_path: Path) -> None:
    """In a sentence, with exit code 2."""
    (tmp_path / "file").write_text("")
    result = run(job, "-o", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
    assert "Traceback" not in result.output


def test_a_folder_is_not_its_files(tmp_path: Path) -> None:
    """The message says what to write."""
    result = run(tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"refused: {tmp_path}: is a folder: name its files, {tmp_path}/*.yaml for example\n"
