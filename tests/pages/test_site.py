# SPDX-License-Identifier: Apache-2.0
"""The documentation as it is read: from a folder, without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="site")
def _site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env={**os.environ, **quiet})
    assert done.returncode == 0, done.stderr
    return folder


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    """Links may lead anywhere; scripts, styles, fonts and pictures are the site's own."""
    loaded = re.compile(
        r"<(?:script|img|iframe|source)[^>]+src=\"?(https?:)?//|<link[^>]+rel=\"?stylesheet[^>]+href=\"?https?:"
    )
    assert [str(page.relative_to(site)) for page in site.rglob("*.html") if loaded.search(page.read_text())] == []


def test_it_opens_and_searches_without_a_network(site: Path, show: Callable[..., Any]) -> None:
    """From a folder, on a machine that is cut off."""
    opened = show(site / "index.html", offline=True)
    page = opened.page
    assert page.locator("h1").inner_text().startswith("Why kfp-volcano")
    page.locator("[data-md-component=search-query]").click(force=True)
    page.keyboard.type("cooldown")
    page.wait_for_selector(".md-search-result__item", state="attached", timeout=60_000)
    assert "cooldown" in page.locator(".md-search-result__list").inner_text().lower()
    assert [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert opened.complaints == []


@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit(site: Path, show: Callable[..., Any], width: int) -> None:
    """Tables and code scroll in themselves; the page does not."""
    for name in ("index", "first-hour", "concepts", "reference/fields", "zh/concepts"):
        page = show(site / f"{name}.html", width).page
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
