# SPDX-License-Identifier: Apache-2.0
"""How long a pipeline of many trainings takes to compile, beside one of as many plain container components.

Both are defined and compiled by KFP's own compiler, to YAML, in one process. The peer is a container component with
the same inputs as a training's task, given values of the same size: the spec, what fills it in, where it runs and
saves, and what names the run. No two specs are equal. Two things are compared with it: `training_task`, one KFP task a
training, which is what a pipeline of hundreds of trainings is made of; and `elastic_training`, whose graph has many
tasks a training.
Time is that of the processor, which on an idle machine is the wall's: compiling is one thread that waits for nothing.
Rounds alternate between the three and the best of each counts, for a busy machine only ever makes one slower.

kfp reads annotations as objects: no `from __future__ import annotations` here.
"""

import argparse
import copy
import gc
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore", FutureWarning)

import kfp  # noqa: E402 - it announces the end of old Pythons
from kfp import compiler, dsl  # noqa: E402

from kfp_volcano import elastic_training, training_task  # noqa: E402

TRAININGS = 300
ROUNDS = 7
SPEC: dict[str, Any] = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "resnet", "namespace": "vision"},
    "spec": {
        "framework": "pytorch",
        "image": "registry.example/train:1.4",
        "command": ["python", "train.py", "--epochs", "20"],
        "queue": "research",
        "env": {"NCCL_DEBUG": "INFO"},
        "roles": {"worker": {"replicas": 4, "resources": {"cpu": 8, "memory": "32Gi", "gpu": 1}}},
        "elasticity": {"strategy": "fixed"},
        "checkpoint": {"volume": "checkpoints"},
    },
}


@dsl.container_component
def plain(
    spec: str, values: str, folder: str, volume: str, copy_up_to: int, run_id: str, task: str, instance: str
) -> dsl.ContainerSpec:
    """The peer: a program that is given its arguments."""
    return dsl.ContainerSpec(
        image="registry.example/train:1.4",
        command=["python", "train.py"],
        args=[
            *("--spec", spec, "--values", values, "--folder", folder, "--volume", volume, "--copy", copy_up_to),
            *("--run", run_id, "--task", task, "--instance", instance),
        ],
    )


def numbered(index: int) -> dict[str, Any]:
    """A spec of its own for each training."""
    spec = copy.deepcopy(SPEC)
    spec["metadata"]["name"] = f"resnet-{index}"
    spec["spec"]["command"] += ["--seed", str(index)]
    return spec


def place_plain(index: int) -> None:
    """One plain task."""
    plain(
        spec=json.dumps(numbered(index), sort_keys=True),
        values="",
        folder="",
        volume="",
        copy_up_to=2**28,
        run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        task=dsl.PIPELINE_TASK_NAME_PLACEHOLDER,
        instance=dsl.PIPELINE_TASK_ID_PLACEHOLDER,
    )


GRAPH = "elastic_training, 4 rounds"
CASES: dict[str, Callable[[int], Any]] = {
    "plain container component": place_plain,
    "training_task": lambda index: training_task(numbered(index)),
    GRAPH: lambda index: elastic_training(numbered(index)),
}


def compiled(place: Callable[[int], Any], count: int, output: Path) -> float:
    """Processor seconds to define and compile a pipeline of so many."""

    def pipeline() -> None:
        for index in range(count):
            place(index)

    gc.collect()
    began = time.process_time()
    compiler.Compiler().compile(dsl.pipeline(pipeline, name="many"), str(output))
    return time.process_time() - began


def main() -> None:
    """Print one JSON object a line; the sizes of what was compiled, the rounds and the machine to standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=TRAININGS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--without-graph", action="store_true", help="leave elastic_training out, which takes a minute")
    arguments = parser.parse_args()
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "many.yaml"
        for number in range(arguments.rounds):
            for name, place in CASES.items():
                if name == GRAPH and (number or arguments.without_graph):
                    continue  # tens of times as long, and far from any bound: once is enough
                took = compiled(place, arguments.trainings, output)
                best[name] = min(took, best.get(name, took))
                size = output.stat().st_size / 1e6
                print(f"round {number + 1}: {name}: {took:.3f} s, {size:.1f} MB of YAML", file=sys.stderr)
    peer, *ours = best
    for name in ours:
        line = {
            "bench": "compile",
            "case": f"{arguments.trainings} x {name}",
            "metric": "compile_cpu_time",
            "value": round(best[name], 3),
            "unit": "s",
            "peer": f"{arguments.trainings} x {peer}",
            "peer_value": round(best[peer], 3),
            "ratio": round(best[peer] / best[name], 3),
        }
        print(json.dumps(line))
    print(f"{os.cpu_count()} processors, {platform.platform()}, kfp {kfp.__version__}", file=sys.stderr)


if __name__ == "__main__":
    main()
