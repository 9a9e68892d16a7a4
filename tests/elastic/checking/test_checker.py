# SPDX-License-Identifier: Apache-2.0
"""The whole of a reading: examples, codes and their page, places, what is silenced, what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfp_volcano.elastic.checking.checker import check
from kfp_volcano.elastic.checking.codes import CODES, Severity
from kfp_volcano.errors import SpecError

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "pipelines" / "examples").rglob("*.py"))
MISTAKE = "batch = 4\nlr = 0.1\nfor group in groups:\n    group['lr'] *= 2{}\n"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_right(path: Path) -> None:
    """Scripts that are documented as examples have no mistakes."""
    assert [str(each) for each in check(path).mistakes] == []


def test_every_code_is_on_its_page() -> None:
    """With its name, its effect and what to write instead, as the program tells them."""
    page = (ROOT / "docs" / "check-script.md").read_text()
    for code in CODES:
        name = f"{code.name} (note)" if code.severity is Severity.NOTE else code.name
        assert f"| {code.code} | {name} | {code.effect} | {code.remedy} |" in page
    assert page.count("\n| KV") == len(CODES) == len({code.code for code in CODES})


def test_every_code_is_tested() -> None:
    """By a script in which it is found."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [code.code for code in CODES if f'"{code.code}"' not in tests] == []


def test_a_finding_says_where_what_why_and_what_instead(tmp_path: Path) -> None:
    """In a form that editors and people follow."""
    path = tmp_path / "train.py"
    path.write_text(MISTAKE.format(""))
    (finding,) = check(path).findings
    first, effect, remedy = str(finding).splitlines()
    assert first.startswith(f"{path}:4: KV101 lr-from-last (mistake): `group['lr'] *= 2`")
    assert effect.split()[0] == "effect:"
    assert remedy.split()[0] == "instead:"


def test_a_mistake_can_be_silenced(tmp_path: Path) -> None:
    """In its line or for the whole reading, by its code and no other."""
    path = tmp_path / "train.py"
    path.write_text(MISTAKE.format("  # kfp-volcano: ignore[KV101]"))
    assert check(path).findings == ()
    path.write_text(MISTAKE.format("  # kfp-volcano: ignore[KV102]"))
    assert check(path).mistakes
    assert check(path, ignored=["KV101"]).findings == ()
    with pytest.raises(SpecError, match="KV999 is no code"):
        check(path, ignored=["KV999"])


@pytest.mark.parametrize(("text", "said"), [("def (", "train.py:1"), ("a = 'ä", "train.py:1"), ("\0", "is not Python")])
def test_what_is_no_python_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """With the place; never with a traceback."""
    path = tmp_path / "train.py"
    path.write_text(text)
    with pytest.raises(SpecError, match=said):
        check(path)
    with pytest.raises(SpecError, match="cannot be read"):
        check(tmp_path / "none.py")


def test_modules_are_read_once_though_they_import_each_other(tmp_path: Path) -> None:
    """Packages and relative imports included; what is not there is somebody else's."""
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "__init__.py").write_text("from .inner import x\n")
    (tmp_path / "part" / "inner.py").write_text("import train\nfrom . import __init__\nx = 1\n")
    (tmp_path / "train.py").write_text("import os, numpy\nfrom part import x\nimport part.inner as inner\n")
    names = [Path(each).name for each in check(tmp_path / "train.py").files]
    assert names[0] == "train.py"
    assert sorted(names).count("inner.py") == 1
