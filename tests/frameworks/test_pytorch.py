# SPDX-License-Identifier: Apache-2.0
"""PyTorch under torchrun: a fixed number of pods, and one that changes."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra `train`)")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_processes_of_two_pods_reduce_together(train: Any) -> None:
    """Two pods of two processes are a world of four, and fit the line."""
    training = train("pytorch-fixed")
    assert training.end() == "Completed", training.logs()
    printed = training.logs()
    assert "world 4: begins at step 0" in printed
    assert "weight 3.0000" in printed


def test_a_resized_job_begins_anew_from_its_checkpoint(train: Any) -> None:
    """From two pods to three and back: each time all go on from the last step with the new number of processes."""
    training = train("pytorch-restart")
    phases = [("world 4", 2), ("world 6", 3), ("world 4", 2)]
    for number, (world, size) in enumerate(phases):
        if number:
            training.resize(size)
        training.until_printed(f"{world}: step", times=1 if number < 2 else 2)
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    begun = [int(step) for step in re.findall(r"begins at step (\d+)", training.logs())]
    assert begun[0] == 0
    assert len([step for step in begun if step > 0]) >= 2


NEIGHBOUR = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: neighbour}
spec:
  framework: pytorch
  image: registry.example/pytorch:2
  command:
    - sh
    - -c
    - |
      echo "meets at $PET_RDZV_ENDPOINT as $TORCHELASTIC_RUN_ID: $RANK of $WORLD_SIZE"
      until [ -e /kfp-volcano/volume/enough ]; do sleep 0.2; done
  queue: research
  roles:
    worker: {replicas: REPLICAS, procs: 1, resources: {gpu: 1}}
  elasticity: {strategy: STRATEGY}
  checkpoint: {volume: checkpoints}
"""
MEETING = re.compile(r"meets at (\S+) as (\S+): (\d+) of 2")


@pytest.mark.parametrize(("strategy", "replicas"), [("restart", "{min: 2, max: 3, initial: 2}"), ("fixed", "2")])
def test_two_jobs_on_one_machine_never_meet(train: Any, strategy: str, replicas: str) -> None:
    """The same spec twice at once: each has its own store under its own id, and one's end is nothing to the other."""
    text = NEIGHBOUR.replace("REPLICAS", replicas).replace("STRATEGY", strategy)
    both = [train("neighbour", text), train("neighbour", text)]
    meetings = []
    for training in both:
        training.until_printed(" of 2", times=2)
        found = MEETING.findall(training.logs())
        assert sorted(rank for _, _, rank in found) == ["0", "1"], training.logs()
        assert len({(where, called) for where, called, _ in found}) == 1
        meetings.append(found[0][:2])
    ports, ids = [where.rpartition(":")[2] for where, _ in meetings], [called for _, called in meetings]
    assert ports[0] != ports[1]
    assert strategy == "fixed" or ids[0] != ids[1]
    for training in both:
        training.volume("enough").touch()
        assert training.end() == "Completed", training.logs()
        assert len(MEETING.findall(training.logs())) == 2


SHARDS = Path(__file__).with_name("live_shards.py")
LIVE = f"""
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {{name: shards}}
spec:
  framework: pytorch
  image: registry.example/pytorch:2
  command: [sh, -c, "exec python {SHARDS} /kfp-volcano/volume/enough"]
  queue: research
  roles:
    worker: {{replicas: {{min: 2, max: 3, initial: 2}}, procs: 2, resources: {{gpu: 1}}}}
  elasticity: {{strategy: live, grace: 20s}}
  checkpoint: {{volume: checkpoints}}
"""


def sizes(printed: str) -> list[int]:
    """The numbers of workers in the order of the epochs, whoever told."""
    found = sorted((int(epoch), int(workers)) for workers, epoch in re.findall(r"(\d) workers: epoch (\d+)", printed))
    return [workers for workers, _ in groupby(workers for _, workers in found)]


def test_what_torchrun_starts_again_trains_with_the_others_again(train: Any) -> None:
    """A process of one of two workers is killed: the other goes on alone until torchrun has both back, in their pod."""
    training = train("shards", LIVE)
    training.until(lambda printed: sizes(printed)[-1:] == [2], "two workers")
    training.kill("core", 1, SHARDS.name, rank=1)
    training.until(lambda printed: sizes(printed)[-3:] == [2, 1, 2], "one worker for a while")
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    assert "lost, so this one ends" in training.pods()["core-1"]
    assert training.restarts("core", 1) == 0
