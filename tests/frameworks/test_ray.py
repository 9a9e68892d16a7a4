"""Ray: a head with a driver, and workers that join and leave its cluster."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_driver_uses_the_workers_that_are_there(train: Any) -> None:
    """From one worker to two and back, without a restart of the driver; the Job ends with it."""
    training = train("ray")
    training.until_printed("workers 1: round")
    training.resize(2)
    training.until_printed("workers 2: round")
    training.resize(1)
    training.until_printed("workers 1: round", times=2)
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    assert "weight 3.0000" in training.logs()
    assert training.logs().count("done after") == 1
