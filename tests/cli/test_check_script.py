# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano check-script`, as a user and as CI call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kfp_volcano.cli import main

ROOT = Path(__file__).resolve().parents[2]
DIGITS = str(ROOT / "pipelines" / "examples" / "digits" / "train.py")


def run(*args: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(main, ["check-script", *args])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    """A script with one mistake."""
    path = tmp_path / "train.py"
    path.write_text("import os\nbatch_size = 8 * int(os.environ['WORLD_SIZE'])\n")
    return str(path)


def test_a_mistake_is_told_and_fails(wrong: str) -> None:
    """With its place, on standard output; exit code 1."""
    code, out, _ = run(wrong, "--static-only")
    assert code == 1
    assert f"{wrong}:2: KV103 batch-by-size (mistake)" in out
    assert "read 1 file, strategy restart: 1 mistake, no notes" in out


def test_a_right_script_passes() -> None:
    """Exit code 0, and a line that says what was read."""
    assert run(DIGITS, "--static-only") == (0, "read 1 file, strategy live: no mistakes, no notes\n", "")


def test_a_mistake_that_is_ignored_passes(wrong: str) -> None:
    """As long as the code is one."""
    assert run(wrong, "--static-only", "--ignore", "KV103")[0] == 0
    code, _, error = run(wrong, "--static-only", "--ignore", "KV1")
    assert (code, "KV1 is no code" in error) == (2, True)


def test_the_findings_are_json(wrong: str) -> None:
    """For other programs: all fields of each finding, and the verdict."""
    code, out, _ = run(wrong, "--static-only", "-o", "json")
    told = json.loads(out)
    (finding,) = told["findings"]
    assert (code, told["right"], told["strategy"]) == (1, False, "restart")
    assert {"path": wrong, "line": 2, "code": "KV103", "severity": "mistake"}.items() <= finding.items()
    assert finding["remedy"]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--workers", "3", "'3' is not MIN:MAX"),
        ("--workers", "3:2", "'3:2' is not MIN:MAX"),
        ("--args", "'open", "cannot be split"),
        ("--timeout", "0", "0.0"),
        ("--strategy", "fixed", "'fixed' is not one of"),
    ],
)
def test_wrong_options_are_told_before_anything_runs(wrong: str, option: str, value: str, said: str) -> None:
    """Exit code 2, with what would be right."""
    result = CliRunner().invoke(main, ["check-script", wrong, option, value])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_a_script_of_another_framework_is_only_read(tmp_path: Path) -> None:
    """Its processes need what torchrun does not give."""
    path = tmp_path / "train.py"
    path.write_text("import tensorflow as tf\nweight = tf.Variable(0.0)\n")
    code, out, error = run(str(path))
    assert (code, out) == (0, "read 1 file, strategy restart: no mistakes, no notes\n")
    assert error == "not run: scripts of tensorflow are only read\n"


def test_what_cannot_be_read_is_bad_use(tmp_path: Path) -> None:
    """Exit code 2, one message, no traceback."""
    code, out, error = run(str(tmp_path / "none.py"))
    assert (code, out) == (2, "")
    assert error.startswith("error: ")
    assert "cannot be read" in error
