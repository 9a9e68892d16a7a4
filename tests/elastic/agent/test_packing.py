# SPDX-License-Identifier: Apache-2.0
"""The agent as one file runs where nothing of this package is."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from kfp_volcano.elastic.agent.packing import main, pack

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_it_holds_all_that_it_needs(tmp_path: Path) -> None:
    """Of Python it needs the standard library alone: no package of this environment is on the path here."""
    file = tmp_path / "agent.pyz"
    pack(file)
    pack(file)
    argv = [sys.executable, "-I", "-S", str(file), "--", "true"]
    done = subprocess.run(argv, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "kfp-volcano agent: not set: KFP_VOLCANO_POD" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["agent.pyz"]


def test_it_is_told_where_to_put_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file has to be named."""
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
    assert main([str(tmp_path / "agent.pyz")]) == 0
