# SPDX-License-Identifier: Apache-2.0
"""What the documentation shows works."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml

from kfp_volcano.cli import main
from kfp_volcano.schemas.gpu_pools import gpu_pools
from kfp_volcano.schemas.policy_validation import policy
from kfp_volcano.schemas.queue_validation import queue_tree
from kfp_volcano.schemas.scenario_validation import scenario
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher import queues
from kfp_volcano.volcano.manifests.job import manifests
from kfp_volcano.volcano.manifests.queue_plan import plan

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[object]:
    """All code blocks of a language, each with a name to find it by."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            indent, kind, body = match.groups()
            if kind == language:
                line = text[: match.start()].count("\n") + 2
                code = "".join(row.removeprefix(indent) for row in body.splitlines(keepends=True))
                found.append(pytest.param(code, id=f"{page.name}:{line}"))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is a whole program; a spec file it names lies beside it."""
    monkeypatch.chdir(tmp_path)
    spec = ROOT / "pipelines" / "examples" / "digits" / "job.yaml"
    (tmp_path / "job.yaml").write_text(spec.read_text())
    (tmp_path / "block.py").write_text(code)
    runpy.run_path(str(tmp_path / "block.py"), run_name="__main__")


@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_blocks_parse_and_specs_are_valid(text: str) -> None:
    """A block that is a document of ours passes the validation, and a TrainingJob renders."""
    for value in yaml.safe_load_all(text):
        if isinstance(value, dict):
            check(value)


def check(value: dict[str, object]) -> None:
    """Validate a document that is of ours."""
    if value.get("kind") == "QueueTree":
        queue_tree(value)
    if value.get("kind") == "GPUPools":
        gpu_pools(value)
    if value.get("kind") in {"Policy", "HorizontalPodAutoscaler"}:
        policy(value, own=["reserve"])
    if value.get("kind") == "Scenario":
        scenario(value)
    if value.get("kind") == "TrainingJob":
        job = training_job(value)
        assert manifests(job, name=job.name, run_id="docs", step="docs", workers=job.workers.replicas.initial)


def test_the_tree_of_queues_is_brought_about(tmp_path: Path) -> None:
    """The page's tree, on a cluster of this machine; a second time there is nothing to do."""
    (block,) = [block for block in blocks("yaml") if "kind: QueueTree" in block.values[0]]  # type: ignore[attr-defined]
    tree = queue_tree(yaml.safe_load(block.values[0]))  # type: ignore[attr-defined]
    cluster = EmbeddedCluster(tmp_path)
    try:
        applied = queues.apply(cluster, plan(tree, queues.read(cluster)), tell=lambda _: None)
        assert applied.error is None
        assert plan(tree, queues.read(cluster)).steps == ()
    finally:
        cluster.shutdown(grace_s=0)


def commands() -> list[object]:
    """Each `$ kfp-volcano …` line of the documentation."""
    return [
        pytest.param(line[2:].split("#")[0], id=line[2:60])
        for block in blocks("console")
        for line in block.values[0].splitlines()  # type: ignore[attr-defined]
        if line.startswith("$ kfp-volcano ")
    ]


def parse(command: click.Command, arguments: list[str], parent: click.Context | None, name: str) -> None:
    """Take a command line down to its last command; nothing is executed."""
    if not isinstance(command, click.Group):
        with command.make_context(name, arguments, parent=parent):
            return
    with command.make_context(name, arguments, parent=parent, resilient_parsing=True) as group:
        below = [*group._protected_args, *group.args]
        if below:
            group.resilient_parsing = False  # from here on an unknown word is an error
            word, found, rest = command.resolve_command(group, below)
            assert found is not None
            parse(found, rest, group, word or below[0])


@pytest.mark.parametrize("command", commands())
def test_commands_exist_with_the_options_shown(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line takes every command as it is written, those of groups too."""
    for folder in ("pipelines", "deploy"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "demo-run").mkdir()  # what the first hour's demo has left
    monkeypatch.chdir(tmp_path)
    parse(main, shlex.split(command)[1:], None, "kfp-volcano")


@pytest.mark.parametrize("wrong", ["jobs list --nonsense", "jobs lst", "run a.py --nonsense", "nope"])
def test_wrong_commands_are_not_taken(wrong: str) -> None:
    """Neither an option nor a command that does not exist, at any depth."""
    with pytest.raises(click.UsageError):
        parse(main, shlex.split(wrong), None, "kfp-volcano")


def test_every_command_and_option_is_documented() -> None:
    """The command-line page names each command, and `run`'s section each option of it."""
    page = (ROOT / "docs" / "cli.md").read_text()
    for name, command in main.commands.items():
        assert f"kfp-volcano {name}" in page, name
        for parameter in command.params:
            if isinstance(parameter, click.Option) and name == "run":
                assert parameter.opts[-1] in page, parameter.opts


def pages(nav: Any) -> Iterator[str]:
    """Those of a part of the navigation, with a title or without."""
    if isinstance(nav, str):
        yield nav
    for part in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages(part)


def test_every_page_is_in_the_navigation() -> None:
    """A page nobody can reach is not documentation."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = list(pages(nav))
    assert sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")) == sorted(listed)


LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that exists."""
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
