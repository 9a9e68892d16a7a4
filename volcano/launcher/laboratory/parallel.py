# SPDX-License-Identifier: Apache-2.0
"""Many simulations at once, by Ray: on this machine, or on the cluster of `RAY_ADDRESS`."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import ray
from ray.exceptions import RayError, RayTaskError

from kfp_volcano.elastic.simulator.figures import figures
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.errors import KfpVolcanoError, UnavailableError
from kfp_volcano.volcano.cluster.host import start_own_ray, tried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kfp_volcano.elastic.simulator.figures import Figures
    from kfp_volcano.elastic.simulator.scenario import Scenario
    from kfp_volcano.schemas.policy import QueuePolicy

    Draw: TypeAlias = Callable[[int], Scenario]
    """The scenario of a seed; it is sent to other processes."""

__all__ = ["Run", "simulated"]

_RAY_ADDRESS = "RAY_ADDRESS"


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation to be done."""

    policy: str | QueuePolicy
    seed: int
    """Of the scenario and of the policy."""


def simulated(draw: Draw, runs: Sequence[Run], *, told: Callable[[int], None] = lambda _: None) -> list[Figures]:
    """The figures of each run, in the order of the runs.

    Args:
        draw: The scenario of a run's seed.
        runs: What is to be done.
        told: Called with the number of runs that are done, each time one more is.

    Raises:
        KfpVolcanoError: What a simulation raised.
        UnavailableError: Ray does not start, or a process of it has died.
    """
    found: list[Figures | None] = [None] * len(runs)
    with _joined() as processes:
        task, shared = ray.remote(_run).options(num_cpus=0, max_retries=2), ray.put(draw)
        waiting = list(enumerate(runs))[::-1]
        under_way: dict[Any, int] = {}
        while waiting or under_way:
            while waiting and len(under_way) < processes:
                index, run = waiting.pop()
                under_way[task.remote(shared, run)] = index
            (done, *_), _ = ray.wait(list(under_way))
            found[under_way.pop(done)] = _answer(done)
            told(len(runs) - len(waiting) - len(under_way))
    return [each for each in found if each is not None]


def _run(draw: Draw, run: Run) -> Figures:
    return figures(simulate(draw(run.seed), run.policy, seed=run.seed))


def _answer(reference: Any) -> Figures:
    try:
        answer: Figures = ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, KfpVolcanoError):
            raise error.cause from None
        raise
    except RayError as error:
        raise UnavailableError(f"a simulation's process has ended: {error}") from error
    return answer


@contextmanager
def _joined() -> Iterator[int]:
    """Join a Ray, and give the number of processes that it is to run at once."""
    if ray.is_initialized():
        yield _cpus()
        return
    if address := os.environ.get(_RAY_ADDRESS):
        try:
            ray.init(address=address, log_to_driver=False)
        except (ConnectionError, RuntimeError) as error:
            raise UnavailableError(f"no Ray at {_RAY_ADDRESS}={address}: {error}") from error
        try:
            yield _cpus()
        finally:
            ray.shutdown()
        return
    own = tried(start_own_ray)
    try:
        yield os.cpu_count() or 1  # its own count of CPUs is a made-up one
    finally:
        own.stop()


def _cpus() -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))
