"""Strategy `restart` on a cluster: what happens to pods, coordinator and programs."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)

SPEC = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: restart}
spec:
  framework: custom
  image: registry.example/any:1
  command:
    - sh
    - -c
    - |
      say() { echo "generation $KFP_VOLCANO_GENERATION: $KFP_VOLCANO_RANK of $KFP_VOLCANO_WORKERS"; }
      trap 'echo checkpoint; exit 0' TERM
      say
      until [ -e /kfp-volcano/volume/enough ]; do sleep 0.2; done
      echo done
  queue: research
  roles:
    worker: {replicas: {min: 2, max: 3, initial: 2}, resources: {gpu: 1}}
  elasticity: {strategy: restart, grace: 60s}
  checkpoint: {volume: checkpoints}
"""


BEGUN = re.compile(r"^generation (\d+): (\d+) of (\d+)$", re.MULTILINE)


def generations(printed: str) -> dict[int, list[tuple[int, int]]]:
    """Of each generation, the rank and the number of workers that its programs were told."""
    told: dict[int, list[tuple[int, int]]] = {}
    for number, rank, workers in BEGUN.findall(printed):
        told.setdefault(int(number), []).append((int(rank), int(workers)))
    return told


def until_together(training: Any, size: int, *, after: int = 0) -> int:
    """Wait for a generation in which so many programs have begun, each as one of them; its number."""
    whole = {(rank, size) for rank in range(size)}
    return training.until(
        lambda printed: max(
            (n for n, told in generations(printed).items() if n > after and set(told) == whole), default=0
        ),
        f"a generation of {size} after {after}",
    )


def test_programs_are_started_anew_whatever_comes_goes_or_is_killed(train: Any) -> None:
    """A resize, a killed coordinator, a killed agent: new generations for the changes, none for the coordinator."""
    training = train("restart", SPEC)
    first = until_together(training, 2)
    training.kill("coordinator", 0, "coordinator")
    training.resize(3)
    grown = until_together(training, 3, after=first)
    training.kill("core", 1, "elastic.agent")
    # How many come until all are back depends on how long the killed one takes: it may be missed before.
    until_together(training, 3, after=grown)
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    told = generations(training.logs())
    assert min(number for number in told if number > first) == grown
    for number, programs in told.items():
        ranks, sizes = zip(*programs, strict=True)
        assert len(set(ranks)) == len(ranks), number
        assert len(set(sizes)) == 1, number
    for pod in ("core-0", "core-1", "elastic-0"):
        printed = training.pods()[pod]
        begun = [int(number) for number, _, _ in BEGUN.findall(printed)]
        assert begun == sorted(set(begun))
        assert printed.count("checkpoint") == len(begun) - 1 - (pod == "core-1"), printed
