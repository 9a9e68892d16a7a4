# SPDX-License-Identifier: Apache-2.0
"""What a training with `Training.loader` waits for its samples, against fetching inline and against a DataLoader.

Prints one JSON object a line, milliseconds a step. In the first case a sample takes its time somewhere else (a disk, a
network), and those of a batch take together as long as the step computes: what fetches ahead should take half of what
fetches inline. In the second one samples are large and cost nothing, so that it measures what they cost on their way.
The loops are run in turns, in short rounds, within one process; each figure is the median over rounds of the mean step,
each ratio the median of those of neighbours. Samples, machine and versions go to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from kfp_volcano.elastic.runtime import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STEPS = 15
"""In a round."""
_BATCH = 16
_WORKERS = 2
_AHEAD = 2


@dataclass(frozen=True)
class Case:
    """Samples, and the model that they are for."""

    name: str
    shape: tuple[int, ...]
    width: int
    depth: int


class Samples(Dataset[tuple[torch.Tensor, int]]):
    """So many, each the same; each takes `seconds`."""

    def __init__(self, shape: tuple[int, ...], count: int, seconds: float) -> None:
        self.sample, self.count, self.seconds = torch.randn(shape), count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.seconds:
            time.sleep(self.seconds)
        return self.sample.clone(), index % 10


class Loop:
    """A model in training; its generators yield the seconds a step took, over a round."""

    def __init__(self, case: Case, seconds: float, rounds: int) -> None:
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Flatten(), nn.LazyLinear(case.width), nn.ReLU()]
        for _ in range(case.depth):
            layers += [nn.Linear(case.width, case.width), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Linear(case.width, 10))
        self.dataset = Samples(case.shape, rounds * _STEPS * _BATCH, seconds)
        self.model(self.dataset.sample[None])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.criterion = nn.CrossEntropyLoss()

    def plain(self) -> Iterator[float]:
        """The loop of any tutorial, with a DataLoader."""
        loader = DataLoader(self.dataset, batch_size=_BATCH, shuffle=True, num_workers=_WORKERS, prefetch_factor=_AHEAD)

        def steps() -> Iterator[None]:
            for x, y in loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                loss.item()
                yield

        yield from by_round(steps())

    def elastic(self, workers: int) -> Iterator[float]:
        """The same loop on the runtime; with no workers it fetches inline."""
        training = Training(self.model, self.optimizer, size=len(self.dataset), batch=_BATCH, epochs=1)

        def steps() -> Iterator[None]:
            for _, (x, y) in training.loader(self.dataset, workers=workers, prefetch=_AHEAD):
                training.step(self.criterion(self.model(x), y))
                yield

        yield from by_round(steps())


def by_round(steps: Iterator[None]) -> Iterator[float]:
    """Seconds a step, over each round."""
    while True:
        began = time.perf_counter()
        for _ in range(_STEPS):
            if next(steps, steps) is steps:
                return
        yield (time.perf_counter() - began) / _STEPS


def computing(case: Case) -> float:
    """Seconds that a step computes."""
    loop = Loop(case, 0.0, 3)
    return min(loop.elastic(0))


def measure(case: Case, seconds: float, rounds: int) -> dict[str, list[float]]:
    """Seconds a step, by round, of each loop, in turns."""
    loops: dict[str, Callable[[], Iterator[float]]] = {
        "DataLoader": lambda: Loop(case, seconds, rounds + 1).plain(),
        "loader": lambda: Loop(case, seconds, rounds + 1).elastic(_WORKERS),
        "inline": lambda: Loop(case, seconds, rounds + 1).elastic(0),
    }
    running = {name: loop() for name, loop in loops.items()}
    found: dict[str, list[float]] = {name: [] for name in running}
    for turn in range(rounds + 1):
        for name, loop in running.items():
            took = next(loop)
            if turn:  # the first round warms up
                found[name].append(took)
    for loop in running.values():
        loop.close()  # type: ignore[attr-defined]
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    slow = Case("a batch takes as long to fetch as its step", (64,), 1024, 6)
    seconds = computing(slow)
    print(f"{slow.name}: {seconds * 1000:.1f} ms", file=sys.stderr)
    report(slow, measure(slow, seconds / _BATCH, rounds))
    large = Case("samples of 600 kB", (3, 224, 224), 16, 0)
    report(large, measure(large, 0.0, rounds))
    print(f"{os.cpu_count()} processors, {platform.platform()}, torch {torch.__version__}", file=sys.stderr)


def report(case: Case, found: dict[str, list[float]]) -> None:
    """Prints a line for each peer; `ratio` above 1 is better than the peer."""
    own = found["loader"]
    for peer, name in (("inline", "fetched inline"), ("DataLoader", "PyTorch's DataLoader, fixed size")):
        line = {
            "bench": "loader",
            "case": case.name,
            "metric": "step",
            "value": round(statistics.median(own) * 1000, 2),
            "unit": "ms",
            "peer": name,
            "peer_value": round(statistics.median(found[peer]) * 1000, 2),
            "ratio": round(statistics.median(b / a for a, b in zip(own, found[peer], strict=True)), 3),
        }
        print(json.dumps(line), flush=True)
    for name, values in found.items():
        print(f"{case.name}, {name}, ms: " + " ".join(f"{value * 1000:.2f}" for value in values), file=sys.stderr)


if __name__ == "__main__":
    main()
