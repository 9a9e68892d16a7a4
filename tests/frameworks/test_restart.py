# SPDX-License-Identifier: Apache-2.0
"""Strategy `restart` on a cluster: what happens to pods, coordinator and programs."""

from __future__ import annotations

import json
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


def test_an_image_that_lacks_the_agent_is_given_it(train: Any) -> None:
    """It is copied into the pod first, and what starts the program is that copy."""
    plain = "{strategy: restart, grace: 60s}"
    assert plain in SPEC
    text = SPEC.replace(plain, "{strategy: restart, grace: 60s, agent: {image: registry.example/kfp-volcano:1}}")
    text = text.replace("      say\n", "      say\n      tr '\\0' ' ' < /proc/$PPID/cmdline\n")
    training = train("restart", text)
    until_together(training, 2)
    training.until_printed("agent.pyz -- sh -c", times=2)
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()


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


CONFIGURED = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: configured}
spec:
  framework: tensorflow
  image: registry.example/any:1
  command:
    - sh
    - -c
    - |
      trap 'exit 0' TERM
      echo "generation $KFP_VOLCANO_GENERATION: $TF_CONFIG"
      until [ -e /kfp-volcano/volume/enough ]; do sleep 0.2; done
  queue: research
  roles:
    chief: {replicas: 1}
    worker: {replicas: {min: 1, max: 3, initial: 2}, resources: {gpu: 1}}
    ps: {replicas: 2}
    evaluator: {replicas: 1}
  elasticity: {strategy: restart, grace: 60s}
  checkpoint: {volume: checkpoints}
"""
TOLD = re.compile(r"^generation (\d+): (\{.*\})$", re.MULTILINE)


def configurations(training: Any) -> dict[int, dict[str, Any]]:
    """Of each generation, what its pods found in TF_CONFIG."""
    told: dict[int, dict[str, Any]] = {}
    for pod, printed in training.pods().items():
        for number, config in TOLD.findall(printed):
            told.setdefault(int(number), {})[pod] = json.loads(config)
    return told


def test_tensorflow_is_told_the_present_size_and_no_other(train: Any) -> None:
    """Grown and shrunk: all processes of a generation have one cluster, of those who are there, each its own place."""
    training = train("configured", CONFIGURED)
    others = {"chief-0": ("chief", 0), "ps-0": ("ps", 0), "ps-1": ("ps", 1), "evaluator-0": ("evaluator", 0)}
    pods = {1: ["core-0"], 2: ["core-0", "elastic-0"], 3: ["core-0", "elastic-0", "elastic-1"]}
    latest = 0
    for size in (2, 3, 1, 2):
        if latest:
            training.resize(size)
        expected = others | {pod: ("worker", index) for index, pod in enumerate(pods[size])}

        def together(_: str, after: int = latest, expected: dict[str, Any] = expected) -> int:
            told = configurations(training)
            return max((n for n, found in told.items() if n > after and found.keys() == expected.keys()), default=0)

        latest = training.until(together, f"a generation of {size}")
        found = configurations(training)[latest]
        assert {pod: (each["task"]["type"], each["task"]["index"]) for pod, each in found.items()} == expected
        cluster = found["chief-0"]["cluster"]
        assert all(each["cluster"] == cluster for each in found.values())
        assert {role: len(hosts) for role, hosts in cluster.items()} == {"chief": 1, "worker": size, "ps": 2}
        assert len({host for hosts in cluster.values() for host in hosts}) == 3 + size
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
