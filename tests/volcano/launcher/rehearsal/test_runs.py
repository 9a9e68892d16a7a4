# SPDX-License-Identifier: Apache-2.0
"""What the ledgers of a rehearsal say."""

from __future__ import annotations

from kfp_volcano.volcano.launcher.rehearsal.runs import differing, pause
from kfp_volcano.volcano.launcher.rehearsal.verdict import Verdict


def commit(step: int, world: int, time: float) -> dict[str, float]:
    """One worker's commit."""
    return {"step": step, "world": world, "time": time}


def test_equal_losses_do_not_differ() -> None:
    """Up to rounding; where one run is longer only what both have counts."""
    assert differing([1.0, 0.5, 0.25], [1.0, 0.5000001], 1e-3)[0] is None


def test_the_first_loss_that_differs_is_told() -> None:
    """Relative to the loss, or to the usual loss where that is smaller; what is no number differs."""
    assert differing([1.0, 0.5, 0.3], [1.0, 0.5, 0.2], 1e-3)[0] == 2
    assert differing([1.0, 1e-9], [1.0, 2e-9], 1e-3)[0] is None
    assert differing([float("nan")], [1.0], 1e-3)[0] == 0


def test_a_pause_is_what_a_change_takes_beyond_a_usual_step() -> None:
    """What came before the gate was opened was waiting for it."""
    commits = [commit(step, 2, step) for step in range(4)] + [commit(step, 3, step + 2.5) for step in range(4, 8)]
    assert pause(commits, 2, 0.0) == 2.5
    assert pause(commits, 2, 5.5) == 0.0
    assert pause(commits[:4], 2, 0.0) is None


def test_a_verdict_is_right_where_all_of_it_is() -> None:
    """Each line says whether it is."""
    verdict = Verdict()
    verdict.add("one thing", figure=1)
    assert verdict.right
    verdict.add("another", right=False)
    assert not verdict.right
    assert str(verdict) == "ok    one thing\nWRONG another"
    assert verdict.figures == {"figure": 1}
