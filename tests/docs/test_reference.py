# SPDX-License-Identifier: Apache-2.0
"""The reference pages say what the code says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"), run_name="reference")


@pytest.mark.parametrize("page", REFERENCE["PAGES"])
def test_pages_follow_the_code(page: str) -> None:
    """Mended by `python -P docs/reference.py`, which scripts/docs calls."""
    written = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert written == REFERENCE["WRITTEN"] + REFERENCE["PAGES"][page]()


def test_every_page_is_made() -> None:
    """None is left over."""
    assert {path.name for path in (ROOT / "docs" / "reference").iterdir()} == set(REFERENCE["PAGES"])
