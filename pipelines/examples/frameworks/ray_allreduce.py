# SPDX-License-Identifier: Apache-2.0
"""Fit a line on Ray: in each round every GPU's node computes a gradient on its share, the driver sums them up.

Nodes that come take part in the next round, those that go in none. With `--until` it trains until somebody creates
that file, for as long as one wants to resize it.
"""

import argparse
import random
import time
from pathlib import Path

import ray

SLOPE, SAMPLES = 3.0, 24


@ray.remote(num_cpus=0, num_gpus=1, max_retries=0)
def gradient(weight: float, x: list[float]) -> float:
    """The sum of the gradients of these samples."""
    return sum(((weight * each - SLOPE * each) * each for each in x), 0.0)


def main() -> None:
    """Train, telling the number of workers whenever it has changed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20, help="fewest rounds")
    parser.add_argument("--until", type=Path)
    options = parser.parse_args()
    ray.init(log_to_driver=False)
    rounds, weight, workers = 0, 0.0, 0
    while rounds < options.rounds or (options.until is not None and not options.until.exists()):
        present = int(ray.cluster_resources().get("GPU", 0))
        if present == 0:
            time.sleep(0.5)
            continue
        x = random.Random(rounds).choices([-1.0, 0.5, 2.0], k=SAMPLES)  # noqa: S311 - samples, not secrets
        try:
            total = sum(ray.get([gradient.remote(weight, x[rank::present]) for rank in range(present)], timeout=10))
        except (ray.exceptions.RayError, TimeoutError) as error:
            print(f"round {rounds} again: {type(error).__name__}", flush=True)
            continue
        weight -= 0.5 * total / SAMPLES
        rounds += 1
        if present != workers:
            workers = present
            print(f"workers {workers}: round {rounds} done", flush=True)
    print(f"done after {rounds} rounds, weight {weight:.4f}", flush=True)


if __name__ == "__main__":
    main()
