# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano trace`: the story of a Job as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from kfp_volcano.cli import main

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = {"time": 1_760_000_000.0, "kind": "RolledBack", "who": "w-0", "what": "back to step 30", "why": "a spike"}


def test_a_runs_folder_tells_its_story(tmp_path: Path) -> None:
    """By the folder alone, or by the Job's name in it; the same things in both forms."""
    (tmp_path / "result.json").write_text(json.dumps({"job": "vision/digits-1a", "trace": [ENTRY]}))
    text = CliRunner().invoke(main, ["trace", str(tmp_path)])
    assert (text.exit_code, text.stdout.splitlines()[1:]) == (
        0,
        ["08:53:20 RolledBack (w-0): back to step 30", "         because: a spike"],
    )
    told = json.loads(CliRunner().invoke(main, ["trace", "digits", "--run", str(tmp_path), "-o", "json"]).stdout)
    assert told["job"] == "vision/digits-1a"
    assert told["trace"][0].items() >= ENTRY.items()


def test_a_folder_that_tells_nothing_is_an_error_in_words(tmp_path: Path) -> None:
    """Exit code 2, with what would do."""
    result = CliRunner().invoke(main, ["trace", str(tmp_path)])
    assert result.exit_code == 2
    assert "no result.json with a trace, and no ledger" in result.output
