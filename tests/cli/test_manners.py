# SPDX-License-Identifier: Apache-2.0
"""Manners that all commands have: help with examples, verbosity, settings, completion, readers that go."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from kfp_volcano.cli.commands import COMMANDS, main
from kfp_volcano.cli.settings import options_below
from kfp_volcano.errors import KfpVolcanoError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAVY = {"kfp", "ray", "torch", "matplotlib", "kubernetes", "numpy", "scipy", "jinja2", "jsonschema", "rich"}
EXAMPLE = re.compile(r"kfp-volcano .*")


def run(*arguments: object, **options: Any) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)


def program(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it as a user does."""
    command = [sys.executable, "-m", "kfp_volcano", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command that does something, with its name."""
    if isinstance(command, click.Group):
        for name in command.commands:
            yield from leaves(command.commands[name], (*path, name))
    else:
        yield path, command


EVERY = [pytest.param(path, command, id=" ".join(path)) for path, command in leaves(main)]


def options_of(command: click.Command) -> set[str]:
    """As they are written."""
    return {name for each in command.params if isinstance(each, click.Option) for name in each.opts}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["jobs", "--help"], ["explain", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """What is not needed to say it is not imported; how long that takes is measured by `scripts/bench startup`."""
    code = (
        "import sys\nfrom kfp_volcano.cli import main\ntry:\n main(sys.argv[1:])\n"
        f"finally:\n print(*sorted({sorted(HEAVY)!r} & sys.modules.keys()), file=sys.stderr)"
    ).replace(f"{sorted(HEAVY)!r}", f"set({sorted(HEAVY)!r})")
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr.split() == []


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    """The sentences are known without the commands, and are theirs."""
    for name, entry in COMMANDS.items():
        own = (main.commands[name].help or "").split("\n\n")[0]
        assert entry.help == " ".join(own.split()), name


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_each_command_has_examples_that_it_understands(path: tuple[str, ...], command: click.Command) -> None:
    """Of itself, and with options and values that parse."""
    examples = [shlex.split(line, comments=True) for line in EXAMPLE.findall(command.help or "")]
    named = max((path, path[-1:]), key=lambda names: sum(tuple(each[1 : 1 + len(names)]) == names for each in examples))
    own = [each for each in examples if tuple(each[1 : 1 + len(named)]) == named]
    assert own, command.help
    for words in own:
        ends = [index for index, word in enumerate(words) if word in {"|", ">", "&&"}]
        given = [word.removesuffix(")") for word in words[1 + len(named) : (ends or [None])[0]]]
        with command.make_context(" ".join(path), given, resilient_parsing=True) as context:
            parser = command.make_parser(context)
            _, left, _ = parser.parse_args(list(given))
            assert len(left) <= sum(isinstance(each, click.Argument) for each in command.params) or left == []


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_each_command_may_be_quiet_or_verbose(path: tuple[str, ...], command: click.Command) -> None:
    """Said after it, or before all."""
    assert {"-q", "--quiet", "-v", "--verbose"} <= options_of(command), path


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        (["tpo"], "top"),
        (["jobs", "lst"], "list"),
        (["render", "--profils", "x", "y"], "--profiles"),
        (["top", "--quue", "research"], "--queue"),
    ],
)
def test_a_typo_is_told_the_nearest_name(typo: list[str], meant: str) -> None:
    """Of commands, commands of a group, and options."""
    result = run(*typo)
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.stderr or meant in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["--help"], ["explain", "--schema"], ["doctor"], ["completion", "bash"]])
def test_a_reader_that_goes_ends_it_quietly(arguments: list[str]) -> None:
    """As for any program of the shell: no traceback, no word, and the code of SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "kfp_volcano", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_quiet_leaves_data_and_errors(root: Path, tmp_path: Path) -> None:
    """Messages go, before the command as after it."""
    pipeline = root / "pipelines" / "elastic_training.py"
    told = run("compile", pipeline, "-o", tmp_path / "a.yaml")
    assert "compiled" in told.stderr
    assert run("compile", pipeline, "-o", tmp_path / "b.yaml", "--quiet").stderr == ""
    assert run("-q", "compile", pipeline, "-o", tmp_path / "c.yaml").stderr == ""
    assert "absent.yaml" in run("--quiet", "validate", "absent.yaml").stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str) -> None:
    """That asks the program."""
    assert "_KFP_VOLCANO_COMPLETE" in run("completion", shell).stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("kfp-volcano whati", ["whatif"]),
        ("kfp-volcano jobs li", ["list"]),
        ("kfp-volcano explain spec.elast", ["spec.elasticity"]),
        ("kfp-volcano explain QueueTree.spec.q", ["QueueTree.spec.queues"]),
        ("kfp-volcano hold vision/", []),
    ],
)
def test_what_is_begun_is_completed(words: str, found: list[str]) -> None:
    """Commands, fields; no Jobs and no message where there is no cluster."""
    count = len(words.split()) - 1
    asked = {"_KFP_VOLCANO_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    away = {name: value for name, value in os.environ.items() if name not in {"KUBECONFIG", "KFP_VOLCANO_CLUSTER"}}
    done = program(env={**away, **asked, "HOME": "/nowhere"})
    assert [line.partition(",")[2] for line in done.stdout.splitlines() if line] == found
    assert done.stderr == ""


@pytest.fixture(name="settings")
def _settings(tmp_path: Path) -> Path:
    """A file of settings: for all commands, and for one."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"host": "https://kfp.example.org", "render": {"run-id": "filed"}}))
    return path


def shown(*arguments: object, **options: Any) -> dict[str, tuple[Any, str]]:
    """What `config` shows: value and origin by setting."""
    found = json.loads(run(*arguments, "config", "-o", "json", **options).stdout)
    return {each["setting"]: (each["value"], each["from"]) for each in found}


def test_settings_are_shown_with_their_origin(settings: Path) -> None:
    """The environment before the file, the file before the default; the general for each command that has it."""
    found = shown("--config", settings, env={"KFP_VOLCANO_SUBMIT_HOST": "https://other.example.org"})
    assert found["schedule list host"] == ("https://kfp.example.org", str(settings))
    assert found["render run-id"] == ("filed", str(settings))
    assert found["submit host"] == ("https://other.example.org", "KFP_VOLCANO_SUBMIT_HOST")
    assert "render workers" not in found


def test_settings_are_in_force(settings: Path, root: Path) -> None:
    """A flag before the environment, that before the file."""
    spec = root / "pipelines" / "examples" / "digits" / "job.yaml"

    def name(*arguments: object, **env: str) -> str:
        (job,) = yaml.safe_load_all(run("--config", settings, "render", spec, *arguments, env=env).stdout)
        return str(job["metadata"]["name"])

    alone = [run("render", spec, "--run-id", each).stdout for each in ("filed", "set", "said")]
    names = [yaml.safe_load(each)["metadata"]["name"] for each in alone]
    assert len(set(names)) == 3
    assert [name(), name(KFP_VOLCANO_RENDER_RUN_ID="set"), name("--run-id", "said")] == names


def test_the_usual_file_is_read(settings: Path, tmp_path: Path) -> None:
    """In XDG_CONFIG_HOME."""
    place = tmp_path / "xdg" / "kfp-volcano" / "config.yaml"
    place.parent.mkdir(parents=True)
    place.write_text(settings.read_text())
    assert shown(env={"XDG_CONFIG_HOME": str(tmp_path / "xdg")})["render run-id"] == ("filed", str(place))


def test_every_wrong_setting_is_named(tmp_path: Path) -> None:
    """At once, each with the nearest that there is."""
    path = tmp_path / "config.yaml"
    path.write_text("hots: x\nrender: {run_id: y}\njobs: {list: {ouptut: json}}\n")
    result = run("--config", path, "validate", "x.yaml")
    assert result.exit_code == 2
    for wrong, right in (("hots", "host"), ("render.run_id", "run-id"), ("jobs.list.ouptut", "output")):
        (line,) = (line for line in result.stderr.splitlines() if wrong in line)
        assert right in line


def test_every_option_can_be_set() -> None:
    """Each has one name in the file, and a variable of its own."""
    known = list(options_below(main))
    places = [(*each.command, each.name) for each in known]
    assert len(places) == len(set(places))
    assert all(each.variables[-1].startswith("KFP_VOLCANO_") for each in known)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_what_lists_can_print_data(output: str) -> None:
    """The same in both forms."""
    as_json = json.loads(run("doctor", "-o", "json").stdout)
    found = (
        json.loads(run("doctor", "-o", output).stdout)
        if output == "json"
        else yaml.safe_load(run("doctor", "-o", output).stdout)
    )
    assert found == as_json
    assert {"what", "ok", "found", "remedy", "required"} <= found[0].keys()


@pytest.mark.parametrize(
    "command", [("jobs", "cancel", "ml/x"), ("schedule", "delete", "x", "--host", "http://127.0.0.1:1"), ("reap", "-h")]
)
def test_what_destroys_can_be_told_not_to_ask(command: tuple[str, ...]) -> None:
    """And says that it would ask."""
    path = [word for word in command if not word.startswith("-")][:2]
    found: Any = main
    for word in path:
        if isinstance(found, click.Group) and word in found.commands:
            found = found.commands[word]
    assert {"--yes", "--dry-run"} <= options_of(found)


def test_errors_are_of_one_family() -> None:
    """Whatever a command raises on purpose ends in a message and a code between 1 and 4."""
    family = [KfpVolcanoError, *KfpVolcanoError.__subclasses__()]
    assert {each.exit_code for each in family} <= {1, 2, 3, 4}
