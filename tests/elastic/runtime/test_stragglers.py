# SPDX-License-Identifier: Apache-2.0
"""Who is found to hold the others up, and who is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.elastic.runtime.stragglers import Stragglers

WINDOW = 5


def verdicts(stragglers: Stragglers, compute_s: list[float], counts: list[int], steps: int, group: str = "g"):
    """What it says over steps in which each worker computes for so long, and waits for the slowest."""
    step_s = max(compute_s) + 0.01
    waits = [step_s - each for each in compute_s]
    return [stragglers.add(group, step_s, waits, counts) for _ in range(steps)]


def test_a_slow_worker_is_found_after_a_window_and_named_once() -> None:
    """The verdict names its rank and how many times slower it is; the next one needs a whole window again."""
    found = verdicts(Stragglers(factor=2.0, window=WINDOW), [0.1, 0.3, 0.1], [8, 8, 8], 2 * WINDOW)
    assert [each is not None for each in found] == [index % WINDOW == WINDOW - 1 for index in range(2 * WINDOW)]
    rank, times = found[WINDOW - 1] or (-1, 0.0)
    assert rank == 1
    assert round(times, 6) == 3.0


def test_a_larger_share_is_no_fault() -> None:
    """A worker that takes three times as long for three times as many samples is as fast as the others."""
    assert not any(verdicts(Stragglers(factor=1.5, window=WINDOW), [0.1, 0.3], [4, 12], 20))


def test_a_resize_begins_a_new_window() -> None:
    """Steps of two sets of workers are never taken together."""
    stragglers = Stragglers(factor=2.0, window=WINDOW)
    for number in range(10):
        assert not any(verdicts(stragglers, [0.1, 0.9], [8, 8], WINDOW - 1, group=f"g{number}"))


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.floats(1.1, 5.0))
def test_the_verdict_is_the_definition(compute_s: list[float], factor: float) -> None:
    """The slowest is named if and only if it takes `factor` times the median of the others; one alone never is."""
    found = verdicts(Stragglers(factor=factor, window=WINDOW), compute_s, [8] * len(compute_s), WINDOW)[-1]
    ordered = sorted(compute_s)
    others = ordered[:-1]
    if not others:
        assert found is None
        return
    middle = len(others) // 2
    usual = others[middle] if len(others) % 2 else (others[middle - 1] + others[middle]) / 2
    if abs(ordered[-1] - factor * usual) > 1e-6:  # else rounding decides
        assert (found is not None) == (ordered[-1] > factor * usual)
