# SPDX-License-Identifier: Apache-2.0
"""How long the policy `goodput` takes to decide, by the size of its queue.

Two figures for each size: the first decision, which fits every Job's model, and the following ones, for which the
models are at hand. Jobs are of five kinds that scale differently well, most of them measured at a few sizes, with
workers of 1, 2 and 4 GPUs, two priorities, and nodes of 8 GPUs of two classes. Where there are more Jobs than GPUs for
them, the others wait as gangs. All of it follows from the sizes alone. The benchmark of the autoscaler calls `cases`.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING

from kfp_volcano.elastic.policies.goodput.policy import Goodput
from kfp_volcano.elastic.policies.goodput.throughput import StepTime, fit
from kfp_volcano.elastic.policies.snapshot import ElasticJob, Measured, NodeState, PendingGang, QueueSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

_NODE_GPUS = 8
_CASES = ((64, 160, 1.0, 100), (512, 200, 0.9, 500), (5000, 1000, 0.9, 2000), (5000, 1000, 0.5, 2000))
"""GPUs, Jobs, the part that is in use, and the milliseconds that a decision may take."""
_KINDS = (
    StepTime(0.02, 0.0010, 0.001, 0.0002, 0.002, 0.0002),
    StepTime(0.05, 0.0020, 0.030, 0.0100, 0.080, 0.0150),
    StepTime(0.10, 0.0080, 0.020, 0.0010, 0.200, 0.0040, overlap=2.0),
    StepTime(0.01, 0.0004, 0.040, 0.0020, 0.090, 0.0030),
    StepTime(0.30, 0.0100, 0.010, 0.0010, 0.030, 0.0010, overlap=1.5),
)


def queue(gpus: int, jobs: int, used: float) -> QueueSnapshot:
    """A queue of so many GPUs, of which so many Jobs hold a part; those that find no GPU wait."""
    free = [_NODE_GPUS] * (gpus // _NODE_GPUS)
    made: list[ElasticJob] = []
    waiting: list[PendingGang] = []
    node = 0
    for number in range(jobs):
        each = (1, 1, 1, 2, 4)[number % 5] if gpus >= 4 * jobs else 1
        workers = max(1, int(gpus * used) // jobs // each)
        nodes: list[str] = []
        for _ in range(workers):
            tried = 0
            while free[node] < each and tried < len(free):
                node, tried = (node + 1) % len(free), tried + 1
            if free[node] >= each:
                free[node] -= each
                nodes.append(f"node-{node:04d}")
        if nodes:
            made.append(_job(number, each, nodes))
        else:
            pods = (1,) * (1 + number % 4)
            waiting.append(PendingGang(key=f"team-{number % 10}/gang-{number:04d}", pods=pods, since=float(number)))
    held = sum(len(job.nodes) * job.gpus_per_worker for job in made)
    classes = ("a100", "h100")
    return QueueSnapshot(
        queue="bench",
        at=100_000.0,
        limit_gpus=gpus,
        allocated_gpus=held,
        nodes={f"node-{at:04d}": NodeState(left, gpu_class=classes[at % 4 == 0]) for at, left in enumerate(free)},
        jobs=tuple(made),
        pending=tuple(waiting),
    )


def _job(number: int, gpus: int, nodes: list[str]) -> ElasticJob:
    model, batch = _KINDS[number % len(_KINDS)], 256 * (1 + number % 3)
    seen = sorted({1, 2, len(nodes), max(1, len(nodes) // 2)}) if number % 7 else []
    measured = tuple(
        Measured(
            workers=size,
            throughput=model.throughput(size, spread, batch) * (1 + 0.001 * (number % 50)),
            batch=batch,
            nodes=spread,
            gpu_class="a100",
        )
        for size in seen
        for spread in (1, 2)[:size]
    )
    return ElasticJob(
        key=f"team-{number % 10}/job-{number:04d}",
        workers=len(nodes),
        running=len(nodes),
        min_workers=1,
        max_workers=16,
        sizes=tuple(range(1, 17)) if number % 2 else (1, 2, 4, 8, 16),
        gpus_per_worker=gpus,
        nodes=tuple(nodes),
        priority=(0, 0, 0, 100)[number % 4],
        created_at=100_000.0 - 600.0 * (1 + number % 40),
        remaining_s=1800.0 * (1 + number % 30),
        batch=batch,
        measured=measured,
    )


def cases(repeats: int = 5) -> Iterator[dict[str, object]]:
    """The figures, each as a line."""
    for gpus, jobs, used, limit_ms in _CASES:
        snapshot = queue(gpus, jobs, used)
        taken = []
        fit.cache_clear()
        for _ in range(repeats + 1):
            began = time.perf_counter()
            decisions = Goodput().decide(snapshot)
            taken.append((time.perf_counter() - began) * 1000)
        case = f"{gpus} GPUs, {jobs} jobs, {used:.0%} in use, goodput"
        exact = all(decision.numbers.get("plan_exact", 1.0) for decision in decisions)
        gap = max(decision.numbers.get("plan_gap", 0.0) for decision in decisions)
        yield _line(case, "decision_first", taken[0], "ms", limit=limit_ms)
        yield _line(case, "decision_median", statistics.median(taken[1:]), "ms", limit=limit_ms)
        yield _line(case, "decision_max", max(taken[1:]), "ms", limit=limit_ms)
        yield _line(case, "plan_exact", float(exact), "1")
        yield _line(case, "plan_gap", gap, "1")
        yield _line(case, "resizes", float(sum(decision.resizes for decision in decisions)), "1")


def _line(case: str, metric: str, value: float, unit: str, **more: object) -> dict[str, object]:
    return {"bench": "autoscaler", "case": case, "metric": metric, "value": round(value, 6), "unit": unit, **more}


if __name__ == "__main__":
    for line in cases():
        print(json.dumps(line), flush=True)
