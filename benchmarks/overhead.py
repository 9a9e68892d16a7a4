# SPDX-License-Identifier: Apache-2.0
"""What the training runtime costs one worker, against the same loop in plain PyTorch.

Prints one JSON object a line: the ratio for steps of at least 50 ms, and the fixed cost of a step in ms, measured with
a model so small that there is little else. Both loops are run in turns, in short rounds of equal work, within one
process and with a real lighthouse; each figure is the median over rounds of the difference between neighbours, so that
a machine that slows down for a while slows both. Samples, machine and versions go to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from kfp_volcano.elastic.runtime import Training
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADDRESS = "127.1.0.5"


@dataclass(frozen=True)
class Case:
    """A model and its data, of a certain weight."""

    name: str
    width: int
    depth: int
    batch: int
    steps: int
    """In a round."""


class Loop:
    """A model in training; `rounds` yields the seconds a step took, over a round."""

    def __init__(self, case: Case, rounds: int) -> None:
        self.case, self.count = case, rounds
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Linear(64, case.width), nn.ReLU()]
        for _ in range(case.depth):
            layers += [nn.Linear(case.width, case.width), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Linear(case.width, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()
        self.x = torch.randn(case.batch * case.steps, 64)
        self.y = torch.randint(10, (len(self.x),))

    def plain(self) -> Iterator[float]:
        """The loop of any tutorial, one epoch a round, with the loss read as a progress display would."""
        for _ in range(self.count):
            began = time.perf_counter()
            for ids in torch.randperm(len(self.x)).split(self.case.batch):
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(self.x[ids]), self.y[ids])
                loss.backward()
                self.optimizer.step()
                loss.item()
            yield (time.perf_counter() - began) / self.case.steps

    def elastic(self) -> Iterator[float]:
        """The same loop on the runtime."""
        training = Training(self.model, self.optimizer, size=len(self.x), batch=self.case.batch, epochs=self.count)
        began = 0.0
        for share in training:
            began = began or time.perf_counter()
            training.step(self.criterion(self.model(self.x[share.ids]), self.y[share.ids]))
            if share.ends_epoch:
                yield (time.perf_counter() - began) / self.case.steps
                began = 0.0


def measure(case: Case, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds a step, by round, of the plain loop and of the runtime, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[names.ENV_JOB_DIR] = folder
        plain, elastic = Loop(case, rounds + 1).plain(), Loop(case, rounds + 1).elastic()
        pairs = [(next(plain), next(elastic)) for _ in range(rounds + 1)][1:]  # the first round warms up
        elastic.close()  # type: ignore[attr-defined]
    return [a for a, _ in pairs], [b for _, b in pairs]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    os.environ.update(
        {
            names.ENV_COORDINATOR: _ADDRESS,
            names.ENV_POD: "bench-0",
            names.ENV_POD_IP: "127.1.0.6",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        }
    )
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    program = (
        "import sys; from kfp_volcano.elastic.runtime.coordinator import Coordinator\n"
        f"coordinator = Coordinator({_ADDRESS!r}, lambda progress: None); print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as coordinator:
        assert coordinator.stdout is not None  # noqa: S101
        coordinator.stdout.readline()
        heavy = Case(name="one worker, steps of >= 50 ms", width=1024, depth=6, batch=160, steps=5)
        plain, elastic = measure(heavy, rounds)
        ratio = statistics.median(b / a for a, b in zip(plain, elastic, strict=True))
        report(heavy, "step", statistics.median(elastic) * 1000, statistics.median(plain) * 1000, ratio)
        samples(heavy, plain, elastic)
        light = Case(name="one worker, smallest model", width=16, depth=0, batch=16, steps=200)
        plain, elastic = measure(light, rounds)
        cost = statistics.median(b - a for a, b in zip(plain, elastic, strict=True))
        line = {
            "bench": "overhead",
            "case": light.name,
            "metric": "fixed_cost",
            "value": round(cost * 1000, 3),
            "unit": "ms",
        }
        print(json.dumps(line))
        samples(light, plain, elastic)
        coordinator.kill()
    print(f"{os.cpu_count()} processors, {platform.platform()}, torch {torch.__version__}", file=sys.stderr)


def report(case: Case, metric: str, value: float, peer: float, slowdown: float) -> None:
    """Prints a line; `ratio` above 1 is better than the peer, `slowdown` its inverse."""
    line = {
        "bench": "overhead",
        "case": case.name,
        "metric": metric,
        "value": round(value, 3),
        "unit": "ms",
        "peer": "plain PyTorch",
        "peer_value": round(peer, 3),
        "ratio": round(1 / slowdown, 4),
        "slowdown": round(slowdown, 4),
    }
    print(json.dumps(line))


def samples(case: Case, plain: list[float], elastic: list[float]) -> None:
    """The rounds behind a figure."""
    for label, rounds in (("plain", plain), ("runtime", elastic)):
        print(f"{case.name}, {label}, ms: " + " ".join(f"{value * 1000:.3f}" for value in rounds), file=sys.stderr)


if __name__ == "__main__":
    main()
