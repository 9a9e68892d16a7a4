# SPDX-License-Identifier: Apache-2.0
"""How a script took its restarts, from what its processes recorded."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfp_volcano.volcano.launcher.rehearsal import restart
from kfp_volcano.volcano.launcher.rehearsal.verdict import Verdict

AT = 100.0


def told(folder: Path, *processes: list[tuple[float, str, int, str]]) -> Any:
    """A stage whose processes recorded that: time, kind, steps, path."""
    (folder / "processes").mkdir()
    for number, events in enumerate(processes):
        lines = [
            json.dumps({"time": time, "kind": kind, "steps": steps, "path": path, "world": "2"})
            for time, kind, steps, path in events
        ]
        (folder / "processes" / f"{number}.jsonl").write_text("\n".join(lines))
    return SimpleNamespace(folder=folder, most=3)


FIRST = [
    (50.0, "start", 0, ""),
    (60.0, "step", 6, ""),
    (101.0, "told", 6, ""),
    (101.5, "wrote", 7, "/v/m.pt"),
    (102.0, "end", 7, ""),
]
NEXT = [(103.0, "start", 0, ""), (104.0, "read", 0, "/v/m.pt"), (105.0, "step", 6, "")]


def test_who_saves_when_told_and_reads_it_again_goes_on(tmp_path: Path) -> None:
    """In time, and from where it left."""
    verdict = Verdict()
    restart._left(told(tmp_path, FIRST, NEXT), verdict, AT, "the resize", 15.0)
    assert verdict.right, str(verdict)
    assert "the script left after 1.0 s" in str(verdict)
    assert "it went on from m.pt, where it had left" in str(verdict)


def test_who_reads_nothing_begins_from_scratch(tmp_path: Path) -> None:
    """Though it had saved."""
    verdict = Verdict()
    restart._taken_up(told(tmp_path, FIRST, NEXT[:1]), verdict, AT, "the resize")
    assert not verdict.right
    assert "it began from scratch" in str(verdict)


@pytest.mark.parametrize(("what", "right"), [("the resize", False), ("the kill", True)])
def test_steps_since_the_last_checkpoint_are_lost(tmp_path: Path, what: str, *, right: bool) -> None:
    """That is a mistake of who is told to leave, and no mistake of who is killed."""
    first = [(50.0, "start", 0, ""), (55.0, "wrote", 2, "/v/m.pt"), (60.0, "step", 6, "")]
    verdict = Verdict()
    restart._taken_up(told(tmp_path, first, NEXT), verdict, AT, what)
    assert verdict.right is right
    assert "4 steps before where it had left" in str(verdict)


def test_what_an_earlier_generation_wrote_is_taken_up(tmp_path: Path) -> None:
    """All steps of the one between are lost where it was killed before it had written anything."""
    stage = told(tmp_path, FIRST, NEXT, NEXT, NEXT, [(time + 100, *rest) for time, *rest in NEXT])
    verdict = Verdict()
    restart._taken_up(stage, verdict, AT + 50, "the kill")
    assert verdict.right
    assert "it went on from m.pt, 6 steps before where it had left" in str(verdict)


def test_who_does_not_leave_in_time_is_killed(tmp_path: Path) -> None:
    """It steps on until the grace time is over."""
    first = [(50.0, "start", 0, ""), (101.0, "told", 6, ""), (115.9, "step", 90, "")]
    later = [(116.5, "start", 0, ""), (117.0, "step", 6, "")]
    verdict = Verdict()
    restart._left(told(tmp_path, first, later), verdict, AT, "the resize", 15.0)
    assert "did not within 15 s and was killed" in str(verdict)


def test_who_had_ended_before_was_not_told(tmp_path: Path) -> None:
    """There is nothing to see of how it leaves."""
    verdict = Verdict()
    restart._left(told(tmp_path, FIRST[:2], NEXT), verdict, AT, "the resize", 15.0)
    assert "no process was told to leave" in str(verdict)
