# SPDX-License-Identifier: Apache-2.0
"""Whatever a file holds, each command answers: what is wrong, where, what to do; never a traceback, never for ever."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kfp_volcano.cli import main

SPEC = """apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: resnet}
spec:
  framework: custom
  image: img:1
  command: [python, train.py]
  queue: research
  roles:
    worker:
      replicas: 2
"""
TREE = """apiVersion: kfp-volcano/v1
kind: QueueTree
metadata: {name: platform}
spec: {plugin: capacity, queues: [{name: research}]}
"""


def with_value(text: str) -> str:
    """The spec with something in place of the queue."""
    return SPEC.replace("research", text)


def with_env(text: str) -> str:
    """The spec with something for its environment."""
    return f"{SPEC}  env: {text}\n"


ALIASES = "a0: &a0 [x, y]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
GOOD = {
    "byte order mark": "\ufeff" + SPEC,
    "line ends of Windows": SPEC.replace("\n", "\r\n"),
    "line ends of old": SPEC.replace("\n", "\r"),
    "separators": f"---\n{SPEC}...\n---\n# the end\n",
    "directive": f"%YAML 1.1\n---\n{SPEC}",
    "anchors": with_value("&q research\n  labels: {}").replace("\n  labels: {}", "\n  priority: *q"),
    "merge": SPEC.replace("replicas: 2", "<<: {replicas: 3}\n      replicas: 2"),
    "octal": SPEC.replace("replicas: 2", "replicas: 0o2").replace("0o2", "02"),
    "date and time": with_env("{DAY: 2026-01-31, TIME: 12:30}"),
    "five thousand variables": with_env("{" + ", ".join(f"A{n}: ''" for n in range(5000)) + "}"),
}
BAD = {
    "empty": ("", "is empty"),
    "comment": ("# nothing\n", "is empty"),
    "list": ("- a\n", "should be a mapping, but is a list"),
    "word": ("word", "should be a mapping"),
    "two": (f"{SPEC}---\n{SPEC}", "another document begins here (one document a file)"),
    "slip": (SPEC.replace("queue:", "queu:"), "did you mean queue?"),
    "twice": (with_value("research\n  queue: other"), "the key 'queue' is there twice"),
    "tab": (SPEC.replace("  queue", "\tqueue"), "indent with spaces"),
    "no quotes": (with_value("a: b"), "stands in quotes"),
    "on": (with_value("on"), 'put it in quotes: "true"; YAML reads bare yes, no, on, off as true/false'),
    "null": (with_value("null"), "spec.queue: should be text, but is nothing"),
    "part of itself": (with_env("&e {A: *e}"), "a value cannot be part of itself"),
    "no anchor": (with_value("*q"), "text that begins with * stands in quotes"),
    "python": (with_env("!!python/object/apply:os.system [id]"), "leave the tag out"),
    "set": (with_env("!!set {A}"), "spec.env: is a set"),
    "binary value": (with_env("{A: !!binary aGk=}"), "spec.env.A: is binary"),
    "number as key": (with_env("{1: x}"), 'spec.env["1"]: is a key, but not text'),
    "list as key": (with_env("{[a]: x}"), "unhashable key"),
    "template": (with_value("{{ .Values.queue }}"), "it is a template: render it first"),
    "not a number": (SPEC.replace("replicas: 2", "replicas: .nan"), "nan is not a usable number"),
    "not a number in JSON": ('{"spec": {"roles": {"worker": {"replicas": NaN}}}}', "nan is not a usable number"),
    "huge": (SPEC.replace("replicas: 2", f"replicas: {'9' * 30}"), "is too large (at most 10000)"),
    "digits": (SPEC.replace("replicas: 2", f"replicas: {'9' * 5000}"), "a number of 5000 digits"),
    "surrogate": ('{"kind": "\\ud800"}', "kind: holds a NUL or a lone surrogate"),
    "control character": (with_value("a\x07b"), "special characters are not allowed"),
    "deep brackets": (with_env("{A: " * 3000), "nested too deeply"),
    "deep lines": ("".join(f"{' ' * n}a:\n" for n in range(400)), "nested too deeply"),
    "deep JSON": ('{"a":' * 900 + "1" + "}" * 900, "nested too deeply"),
    "bottomless JSON": ('{"a":' * 100_000, "nested too deeply"),
    "aliases": (ALIASES + SPEC, "holds too many values"),
    "thousands of problems": (with_env("{" + ", ".join(f"A{n}: {n}" for n in range(3000)) + "}"), "3000 problems in"),
}
BYTES = {
    "latin": (SPEC.replace("img", "\u00e9").encode("latin-1"), "is not UTF-8 text"),
    "utf-16": (SPEC.encode("utf-16"), "is not UTF-8 text"),
    "compressed": (b"\x1f\x8b\x08\x00\x00", "is not UTF-8 text"),
    "zeros": (bytes(64), "special characters are not allowed"),
}
COMMANDS = (
    ["validate", "{}"],
    ["render", "{}"],
    ["diff", "good.yaml", "{}"],
    ["validate", "good.yaml", "--profiles", "{}"],
    ["render", "good.yaml", "--pools", "{}"],
    ["queues", "scheduler-config", "{}"],
    ["convert", "{}"],
)


@pytest.fixture(name="folder", autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a spec that is good."""
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(SPEC)
    return tmp_path


def run(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("name", GOOD)
def test_what_yaml_allows_is_allowed(name: str) -> None:
    """Whatever editors and generators make of a spec, it is that spec."""
    Path("job.yaml").write_bytes(GOOD[name].encode())
    result = run("validate", "job.yaml")
    assert result.exit_code == 0, result.output
    assert "default/resnet is valid: 2 workers in queue research" in result.stdout


@pytest.mark.parametrize("name", [*BAD, *BYTES])
def test_what_is_wrong_is_told_with_its_place_and_a_remedy(name: str) -> None:
    """In words, on standard error, with the file's name and exit code 2."""
    content, words = (BAD[name][0].encode(), BAD[name][1]) if name in BAD else BYTES[name]
    Path("job.yaml").write_bytes(content)
    result = run("validate", "job.yaml")
    assert result.exit_code == 2, result.exception
    assert result.stdout == ""
    assert words in result.stderr
    assert "job.yaml" in result.stderr


@pytest.mark.parametrize("command", COMMANDS[1:], ids=lambda command: " ".join(command[:2]))
def test_no_command_breaks_at_a_file(command: list[str]) -> None:
    """Each of the others, at each of the files that is small."""
    contents = {name: text.encode() for name, (text, _) in BAD.items() if len(text) < 1 << 14 and name != "aliases"}
    contents.update((name, content) for name, (content, _) in BYTES.items())
    contents["tree"] = TREE.replace("research", "{[").encode()
    for name, content in contents.items():
        Path("job.yaml").write_bytes(content)
        result = run(*(part.format("job.yaml") for part in command))
        assert result.exit_code == 2, (name, result.exception)
        assert "job.yaml" in result.stderr, name


@pytest.mark.parametrize("path", ["absent.yaml", ".", "good.yaml/below"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_what_is_no_file_is_named(command: list[str], path: str) -> None:
    """Nothing there, a folder, a file taken for a folder."""
    result = run(*(part.format(path) for part in command))
    assert result.exit_code == 2, result.exception
    assert f"{path}: " in result.stderr


def test_a_pipe_is_a_file() -> None:
    """As the shell's `<(…)` gives one."""
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_text, args=(json.dumps({"kind": "Job"}),))
    writer.start()
    result = run("validate", "pipe")
    writer.join()
    assert result.exit_code == 2
    assert 'kind: is "Job"' in result.stderr
