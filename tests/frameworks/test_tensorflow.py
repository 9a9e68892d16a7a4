"""TensorFlow: workers that mirror their variables, parameter servers, and the cluster of the present size."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed (extra `tensorflow`)"
    ),
]


def test_workers_mirror_their_variables(train: Any) -> None:
    """Two workers reduce their gradients together."""
    training = train("tensorflow-mirrored")
    assert training.end() == "Completed", training.logs()
    assert "workers 2: begins at step 0" in training.logs()
    assert "weight 3.0000" in training.logs()


def test_workers_train_what_parameter_servers_hold(train: Any) -> None:
    """The Job ends with its chief; the variable was on a server's device."""
    training = train("tensorflow-ps")
    assert training.end() == "Completed", training.logs()
    assert "the weight is on /job:ps" in training.logs()
    assert "weight 3.0" in training.logs() or "weight 2.99" in training.logs()


def test_the_configuration_is_that_of_the_present_size(train: Any) -> None:
    """From one worker to two and back, each time from the checkpoint, with as many replicas as there are workers."""
    training = train("tensorflow-restart")
    training.until_printed("workers 1: step")
    training.resize(2)
    training.until_printed("workers 2: step")
    training.resize(1)
    training.until_printed("workers 1: step", times=2)
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    assert "weight 3.0000" in training.logs()
