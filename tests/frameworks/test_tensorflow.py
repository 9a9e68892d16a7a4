# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: workers that mirror their variables, parameter servers, and the cluster of the present size."""

from __future__ import annotations

import importlib.util
import json
import re
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed (extra `tensorflow`)"
    ),
]


CONFIGURED = re.compile(r"^replicas (\d+): configured (\{.*\})$", re.MULTILINE)


def test_devices_of_one_pod_mirror_their_variables(train: Any) -> None:
    """A pod that is alone has no TF_CONFIG, and its devices reduce their gradients together."""
    training = train("tensorflow-single")
    assert training.end() == "Completed", training.logs()
    assert "replicas 2: configured {}" in training.logs()
    assert "weight 3.0000" in training.logs()


def test_workers_mirror_their_variables(train: Any) -> None:
    """Two workers reduce their gradients together."""
    training = train("tensorflow-mirrored")
    assert training.end() == "Completed", training.logs()
    assert training.logs().count("replicas 2: configured") == 2
    assert "weight 3.0000" in training.logs()


def test_workers_train_what_parameter_servers_hold(train: Any) -> None:
    """The variable is on a server's device; the evaluator sees the last checkpoint, and the Job ends with it."""
    training = train("tensorflow-ps")
    assert training.end() == "Completed", training.logs()
    printed = training.pods()
    assert "the weight is on /job:ps" in printed["chief-0"]
    steps, weight = re.search(r"done after (\d+) steps, weight (\S+)", printed["chief-0"]).groups()
    assert (steps, float(weight)) == ("60", pytest.approx(3.0, abs=0.05))
    losses = [float(loss) for loss in re.findall(r"steps the loss is (\S+)", printed["evaluator-0"])]
    assert "after 60 steps the loss is" in printed["evaluator-0"]
    assert losses[-1] < 0.01


def test_the_configuration_is_that_of_the_present_size(train: Any) -> None:
    """From one worker to two and back: each process finds the cluster of its size, and goes on from the checkpoint."""
    training = train("tensorflow-restart")
    training.until_printed("replicas 1: step")
    training.resize(2)
    training.until_printed("replicas 2: step")
    training.resize(1)
    training.until_printed("replicas 1: step", times=2)
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    assert "weight 3.0000" in training.logs()
    found = {pod: CONFIGURED.findall(printed) for pod, printed in training.pods().items()}
    assert [size for size, _ in found["core-0"]] == ["1", "2", "1"]
    assert [size for size, _ in found["elastic-0"]] == ["2"]
    alone, first, again = (json.loads(config) for _, config in found["core-0"])
    second = json.loads(found["elastic-0"][0][1])
    assert alone == again == {}
    assert first["cluster"] == second["cluster"]
    assert len(first["cluster"]["worker"]) == 2
    assert [each["task"] for each in (first, second)] == [{"type": "worker", "index": index} for index in (0, 1)]
