# SPDX-License-Identifier: Apache-2.0
"""Specs to YAML manifests per second, beside the dry run of TorchX's Kubernetes scheduler for the same job.

`scripts/bench render`, which installs the peer. Both are asked for the YAML text of eight workers with a GPU each. Ours
starts from the spec as a mapping, so that its check is in the figure; TorchX's from an AppDef. Rounds alternate between
the two and the best of each counts, for a busy machine only ever makes either slower.
"""

from __future__ import annotations

import copy
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.job import manifests
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 8
MANY = 10_000
FIRST = 100
ROUNDS = 5
ROUND_S = 1.0
SPEC: dict[str, Any] = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "resnet", "namespace": "vision"},
    "spec": {
        "framework": "pytorch",
        "image": "registry.example/train:1.4",
        "command": ["python", "train.py", "--lr", "0.1"],
        "queue": "research",
        "env": {"NCCL_DEBUG": "INFO"},
        "roles": {
            "worker": {
                "replicas": {"min": 2, "max": WORKERS},
                "resources": {"cpu": 8, "memory": "32Gi", "gpu": 1},
            }
        },
        "checkpoint": {"volume": "checkpoints"},
    },
}


def ours(spec: dict[str, Any] = SPEC) -> str:
    """A spec checked, rendered and written."""
    job = training_job(spec)
    return manifest_yaml(manifests(job, name=f"{job.name}-1", run_id="bench", step="bench", workers=WORKERS))


class Peer:
    """TorchX in a process of its own, as `scripts/bench` has set it up; absent where it is run without."""

    def __init__(self, python: str) -> None:
        command = [python, str(Path(__file__).with_name("torchx_peer.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = self._line()

    def per_second(self) -> float:
        """What one round of its work comes to."""
        stdin = cast("IO[str]", self._process.stdin)
        stdin.write(f"{ROUND_S}\n")
        stdin.flush()
        return float(self._line())

    def end(self) -> None:
        """No more rounds."""
        self._process.communicate()

    def _line(self) -> str:
        line = cast("IO[str]", self._process.stdout).readline().strip()
        if not line:
            raise SystemExit(f"TorchX ended with {self._process.wait()} instead of an answer")
        return line


def per_second(work: Callable[[], str]) -> float:
    """How often a second one round gets through it."""
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < ROUND_S:
        work()
        count += 1
    return count / elapsed


def memory_growth() -> float:
    """MiB by which the process's peak grows while 10,000 specs are rendered, no two alike, after the first hundred."""
    peaks = []
    for index in range(FIRST + MANY):
        if index == FIRST:
            peaks.append(peak())
        ours(numbered(index))
    return peak() - peaks[0]


def peak() -> float:
    """MiB of memory that the process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def numbered(index: int) -> dict[str, Any]:
    """A spec in which whatever is free to differ differs: names, texts, sizes, keys."""
    spec: dict[str, Any] = copy.deepcopy(SPEC)
    spec["metadata"] = {
        "name": f"resnet-{index}",
        "namespace": f"team-{index}",
        "labels": {f"run-{index}": f"v{index}"},
    }
    spec["spec"] |= {
        "image": f"registry.example/train:1.{index}",
        "command": ["python", "train.py", "--seed", f"{index}", f"--note=a text of its own for number {index}"],
        "queue": f"queue-{index}",
        "env": {f"VARIABLE_{index}": f"value {index}"},
        "checkpoint": {"volume": f"claim-{index}"},
    }
    spec["spec"]["roles"]["worker"]["resources"] = {"cpu": f"{index + 1}m", "memory": f"{index + 1}Mi", "gpu": 1}
    return spec


def main() -> None:
    """Print one JSON object a line."""
    python = os.environ.get("TORCHX_PYTHON")
    other = Peer(python) if python else None
    best, best_other = 0.0, 0.0
    for number in range(ROUNDS):
        mine, theirs = per_second(ours), other.per_second() if other else 0.0
        print(f"round {number + 1}: {mine:.0f}/s, peer {theirs:.0f}/s", file=sys.stderr)
        best, best_other = max(best, mine), max(best_other, theirs)
    line: dict[str, Any] = {
        "bench": "render",
        "case": f"{WORKERS}-worker job",
        "metric": "specs_per_s",
        "value": round(best, 1),
        "unit": "1/s",
    }
    if other:
        other.end()
        line |= {"peer": other.name, "peer_value": round(best_other, 1), "ratio": round(best / best_other, 2)}
    print(json.dumps(line))
    growth = {
        "bench": "render",
        "case": f"{MANY} distinct specs",
        "metric": "peak_memory_growth",
        "value": round(memory_growth(), 2),
    }
    print(json.dumps({**growth, "unit": "MiB"}))


if __name__ == "__main__":
    main()
