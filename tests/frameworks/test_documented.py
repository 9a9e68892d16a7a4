# SPDX-License-Identifier: Apache-2.0
"""The pages on frameworks show what the tests of this folder run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kfp_volcano.schemas.validation import training_job

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.stem: path for path in (ROOT / "pipelines" / "examples" / "frameworks").glob("*.yaml")}
PAGES = sorted((ROOT / "docs" / "frameworks").glob("*.md"))


def shown(page: Path) -> list[dict]:
    blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [yaml.safe_load(block) for block in blocks]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_an_example_as_it_is_run(page: Path) -> None:
    """Each page has one, and what bears an example's name is that example."""
    found = [spec for spec in shown(page) if spec["metadata"]["name"] in EXAMPLES]
    assert found
    for spec in found:
        assert spec == yaml.safe_load(EXAMPLES[spec["metadata"]["name"]].read_text())


def test_every_example_is_shown_and_run() -> None:
    """None is forgotten by the pages or by the tests."""
    names = {spec["metadata"]["name"] for page in PAGES for spec in shown(page)}
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for name, path in EXAMPLES.items():
        assert training_job(yaml.safe_load(path.read_text())).name == name
        assert name in names
        assert f'train("{name}")' in tests
