# SPDX-License-Identifier: Apache-2.0
"""A real API server takes what `kfp-volcano render` prints of each example that this project shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from apiserver.judge import Judge
from apiserver.server import ApiServer
from kfp_volcano.cli import main
from kfp_volcano.schemas.queue_validation import queue_tree
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests import queues

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)```yaml[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def documents(kind: str) -> list[Any]:
    """All documents of a kind, in the pages' blocks and in files of their own, with the place of each."""
    texts = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
            indent, body = match.groups()
            texts[f"{page.relative_to(ROOT)}:{number}"] = re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
    for folder in ("pipelines", "tests/golden"):
        files = (file for file in sorted((ROOT / folder).rglob("*.yaml")) if ".manifest." not in file.name)
        texts |= {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    read = [(place, value) for place, text in texts.items() for value in yaml.safe_load_all(text)]
    return [
        pytest.param(value, id=place) for place, value in read if isinstance(value, dict) and value.get("kind") == kind
    ]


@pytest.fixture(scope="module")
def judge(apiserver: ApiServer) -> Iterator[Judge]:
    judge = Judge(apiserver.admin, "default")
    yield judge
    judge.close()


@pytest.mark.parametrize("spec", documents("TrainingJob"))
def test_what_render_prints_is_accepted(judge: Judge, tmp_path: Path, spec: dict[str, Any]) -> None:
    """At its least and at its largest size, with all that Volcano makes of it."""
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(spec), encoding="utf-8")
    replicas = training_job(spec).workers.replicas
    for workers in {replicas.min, replicas.max}:
        printed = CliRunner().invoke(main, ["render", str(file), "--workers", str(workers)], catch_exceptions=False)
        assert printed.exit_code == 0, printed.output
        assert judge.refusals(list(yaml.safe_load_all(printed.stdout))) == []


@pytest.mark.parametrize("tree", documents("QueueTree"))
def test_the_queues_of_a_tree_are_accepted(judge: Judge, tree: dict[str, Any]) -> None:
    """Its Queues and ResourceQuotas, parents before children."""
    assert judge.queue_refusals(queues.manifests(queue_tree(tree))) == []


def test_there_are_examples_of_both() -> None:
    """Pages, pipelines and golden files are all looked at."""
    places = [param.id.split("/")[0] for kind in ("TrainingJob", "QueueTree") for param in documents(kind)]
    assert {"docs", "pipelines", "tests"} <= {*places}
