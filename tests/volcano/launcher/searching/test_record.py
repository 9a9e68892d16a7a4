# SPDX-License-Identifier: Apache-2.0
"""What a search has found outlives whoever searches."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.volcano.launcher.searching.record import Found, Record, ranked

if TYPE_CHECKING:
    from pathlib import Path

ASKED = {"spec": {"a": 1}, "param": {"env.LR": "1,2"}, "trials": None}


def found(trial: int, state: Any = "ended", value: float | None = 0.5, **more: Any) -> Found:
    return Found(trial=trial, values={"env.LR": "1"}, state=state, value=value, percent=50.0, **more)


def test_who_asks_the_same_again_goes_on_with_what_is_left(tmp_path: Path) -> None:
    """What ended and what was given up is done; what failed is tried again, as another Job than before."""
    first = Record(tmp_path / "out", ASKED)
    for each in (found(1), found(2, "pruned"), found(3, "failed", None)):
        first.add(each)
    again = Record(tmp_path / "out", ASKED)
    assert (first.begun, again.begun) == (False, True)
    assert again.id == first.id
    assert again.found == first.found
    assert [again.attempt(trial) for trial in (1, 2, 3, 4)] == [None, None, 2, 1]
    again.add(found(3, "failed", None, attempt=2))
    assert Record(tmp_path / "out", ASKED).attempt(3) == 3


def test_a_folder_of_another_search_is_left_as_it_is(tmp_path: Path) -> None:
    """And it is said what is different."""
    Record(tmp_path, ASKED).add(found(1))
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    with pytest.raises(SpecError, match=r"another search \(other spec, trials\)"):
        Record(tmp_path, {**ASKED, "spec": {"a": 2}, "trials": 3})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"id": 1'])
def test_a_folder_that_holds_something_else_is_named(tmp_path: Path, text: str) -> None:
    """A damaged record is no reason for a traceback, and none to write over it."""
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(SpecError, match="--out"):
        Record(tmp_path, ASKED)
    assert (tmp_path / "search.json").read_text() == text


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """With the system's reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="cannot be used"):
        Record(tmp_path / "file" / "out", ASKED)


def test_dates_in_a_spec_are_kept_as_texts(tmp_path: Path) -> None:
    """YAML has dates, and JSON has none."""
    date = dt.date(2026, 3, 2)
    Record(tmp_path, {"spec": {"until": date}})
    assert Record(tmp_path, {"spec": {"until": date}}).attempt(1) == 1


@pytest.mark.parametrize(("mode", "best"), [("max", [4, 1, 5, 2, 3]), ("min", [1, 4, 2, 5, 3])])
def test_the_best_comes_first_and_what_was_given_up_after_all_that_ended(mode: str, best: list[int]) -> None:
    """Whatever it promised; and what has no value last."""
    all_found = [
        found(1, value=0.5),
        found(2, "pruned", 0.1),
        found(3, "failed", None),
        found(4, value=0.9),
        found(5, "pruned", 0.99),
    ]
    assert [each.trial for each in ranked({each.trial: each for each in all_found}, mode)] == best
