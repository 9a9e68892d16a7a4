# SPDX-License-Identifier: Apache-2.0
"""The reference pages say what the code says, and all of it."""

from __future__ import annotations

import runpy
from pathlib import Path

import click
import pytest
from prometheus_client import CollectorRegistry

import kfp_volcano
from kfp_volcano import errors
from kfp_volcano.cli import main
from kfp_volcano.cli.settings import options_below
from kfp_volcano.elastic import runtime
from kfp_volcano.elastic.autoscaler.telling.telemetry import Telemetry
from kfp_volcano.schemas import names

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"), run_name="reference")


def page(name: str) -> str:
    """The text of a page of the reference."""
    return (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REFERENCE["PAGES"])
def test_pages_follow_the_code(name: str) -> None:
    """Mended by `python docs/reference.py`, which scripts/docs calls."""
    assert page(name.removesuffix(".md")) == REFERENCE["WRITTEN"] + REFERENCE["PAGES"][name]()


def test_every_page_is_made() -> None:
    """None is left over."""
    assert {path.name for path in (ROOT / "docs" / "reference").iterdir()} == set(REFERENCE["PAGES"])


def test_every_public_name_has_a_heading() -> None:
    """Of the package, of the runtime and of the errors."""
    python, raised = page("python").splitlines(), page("errors").splitlines()
    public = [*kfp_volcano.__all__, *runtime.__all__]
    assert [name for name in public if name != "__version__" and f"### `{name}`" not in python] == []
    assert [name for name in errors.__all__ if f"### `{name}`" not in raised] == []


def test_every_exit_code_is_told() -> None:
    """Those of errors, and those of the command line."""
    codes = {each.exit_code for name in errors.__all__ if hasattr(each := getattr(errors, name), "exit_code")}
    told = page("errors")
    assert all(f"| `{code}` |" in told for code in codes | {0, 4, 130, 141})


def test_every_command_and_option_is_told() -> None:
    """Under the command's heading."""
    sections = dict(part.split("\n", 1) for part in page("commands").split("\n## ")[1:])
    for each in options_below(main):
        section = sections[f"`{' '.join(('kfp-volcano', *each.command))}`"]
        assert all(name in section for name in each.option.opts), each
    assert len(sections) == 1 + count(main)


def count(group: click.Group) -> int:
    """How many commands are below."""
    return sum(1 + (count(each) if isinstance(each, click.Group) else 0) for each in group.commands.values())


def test_every_name_on_the_cluster_is_told() -> None:
    """Annotations, labels, variables, ports: each with what it is."""
    told = page("names")
    constants = {name: value for name, value in vars(names).items() if name.isupper() and not name.startswith("_")}
    assert [name for name in constants if f"| `{name}` |" not in told] == []
    rows = [line.split("|") for line in told.splitlines() if line.startswith("| `kfp-volcano/")]
    assert rows
    assert [cells[1] for cells in rows if not cells[3].strip()] == []


def test_every_metric_has_a_heading() -> None:
    """With what it counts."""
    registry = CollectorRegistry()
    Telemetry(registry)
    told = page("metrics")
    for metric in registry.collect():
        assert f"## `{metric.name}" in told
        assert metric.documentation in told
