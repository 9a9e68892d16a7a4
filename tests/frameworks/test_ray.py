# SPDX-License-Identifier: Apache-2.0
"""Ray: a head with a driver, and workers that join and leave its cluster."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


TOLD = re.compile(r"^workers (\d+): round (\d+) done$", re.MULTILINE)


def test_a_driver_uses_the_workers_that_are_there(train: Any) -> None:
    """From one worker to two and back: Ray's resources follow, the same driver trains on, and the Job ends with it."""
    training = train("ray")
    for number, workers in enumerate((1, 2, 1)):
        if number:
            training.resize(workers)
        training.until(lambda printed, seen=number + 1: len(TOLD.findall(printed)) >= seen, f"{workers} workers")
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    assert "weight 3.0000" in training.logs()
    told = [(int(workers), int(rounds)) for workers, rounds in TOLD.findall(training.logs())]
    assert [workers for workers, _ in told] == [1, 2, 1]
    assert [rounds for _, rounds in told] == sorted({rounds for _, rounds in told})
    assert training.restarts("head", 0) == 0


NEIGHBOUR = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: neighbour}
spec:
  framework: ray
  image: registry.example/ray:2.54
  command:
    - sh
    - -c
    - |
      python -c 'import ray; ray.init(); print(sorted(node["NodeManagerAddress"] for node in ray.nodes()))'
      until [ -e /kfp-volcano/volume/enough ]; do sleep 0.2; done
  queue: research
  roles:
    head: {replicas: 1}
    worker: {replicas: 1, resources: {gpu: 1}}
  checkpoint: {volume: checkpoints}
"""


def test_two_jobs_on_one_machine_never_meet(train: Any) -> None:
    """The same spec twice at once: each driver sees the nodes of its own Job, and no others."""
    both = [train("neighbour", NEIGHBOUR), train("neighbour", NEIGHBOUR)]
    for training in both:
        training.until_printed("]\n")
        pods = training.cluster.list("Pod", training.namespace)[0]
        assert str(sorted(pod["status"]["podIP"] for pod in pods)) in training.logs()
    for training in both:
        training.volume("enough").touch()
        assert training.end() == "Completed", training.logs()
