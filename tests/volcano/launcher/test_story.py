# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from kfp_volcano.volcano.launcher.story import clock, duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.00 s"), (0.214, "0.21 s"), (0.996, "1.0 s"), (7.44, "7.4 s"), (9.97, "10 s"), (48.4, "48 s"),
        (119.7, "2 min 00 s"), (161, "2 min 41 s"), (3599.6, "1 h 00 min"), (11100, "3 h 05 min"),
    ],
)  # fmt: skip
def test_duration_is_said_as_people_say_it(seconds, words):
    """Precise where short, round where long, and never `60 s` of a minute."""
    assert duration(seconds) == words


@pytest.mark.parametrize(("seconds", "words"), [(0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (3725, "1:02:05")])
def test_clock_counts_from_the_start(seconds, words):
    """Moments are minutes and seconds, with hours where there are any."""
    assert clock(seconds) == words
