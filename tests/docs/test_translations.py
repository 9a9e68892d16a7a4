# SPDX-License-Identifier: Apache-2.0
"""A translation says what its original says: the same headings, the same code, the same links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAIRS = [
    (ROOT / "README.md", ROOT / "README.zh-CN.md"),
    *((ROOT / "docs" / path.name, path) for path in sorted((ROOT / "docs" / "zh").glob("*.md"))),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)")


def headings(text: str) -> list[int]:
    """The level of each."""
    return [len(line.split(" ")[0]) for line in FENCE.sub("", text).splitlines() if re.match(r"#+ ", line)]


def links(page: Path) -> list[Path | str]:
    """Where it leads, as places; one to a translated page, or to the other language, counts as the original's."""
    found: list[Path | str] = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith("http"):
            found.append(target)
            continue
        place = (page.parent / target).resolve()
        if place.parent.name == "zh":
            place = place.parent.parent / place.name
        found.append(place if not place.name.startswith("README") else "the other language")
    return sorted(found, key=str)


@pytest.mark.parametrize(("original", "translation"), PAIRS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_translation_has_the_same_parts(original: Path, translation: Path) -> None:
    """In the same order; links may stand in another order within a sentence."""
    before, after = original.read_text(encoding="utf-8"), translation.read_text(encoding="utf-8")
    assert headings(after) == headings(before)
    assert FENCE.findall(after) == FENCE.findall(before)
    assert links(translation) == links(original)
    assert after.count("\n|") == before.count("\n|")
    assert after.count("\n- ") == before.count("\n- ")
