# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is, on one core: a workload of Pollux, and a month of 1,000 GPUs with 50,000 jobs.

Pollux' workload 6 (160 jobs on 64 GPUs), where the public data is at hand, under `tiresias`, which took the published
simulator 44 s, and under `goodput`.

Jobs come evenly over 30 days, ask for 1 to 16 GPUs, have lognormal durations that fill 80 % of the cluster at the sizes
they ask for, and four of five are elastic, from half of that to four times as much. All of it follows from a seed. One
line a policy: seconds of processor time, what was simulated in one of them, and the memory of the process at its peak.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import sys
import time
from pathlib import Path

from kfp_volcano.elastic.simulator.reading.trace import read_trace
from kfp_volcano.elastic.simulator.scenario import Job, Node, Scenario
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.traced import Scaling, Traced

_SIZES = (1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16)
_DAY_S, _SPREAD, _LOAD, _SHORTEST_S = 86_400.0, 1.5, 0.8, 30.0
_ELASTIC = 0.8
_LIMIT_S, _LIMIT_MB = 120.0, 1024
"""What the month under `adaptive` may take."""
_POLLUX_S = {"tiresias": 2.0, "goodput": 60.0}
_PUBLISHED_S = {"tiresias": 44.0}
"""What the published simulator took on a machine of this kind; it builds its interpolations anew at each step."""


def month(jobs: int, *, nodes: int = 125, seed: int = 1) -> Scenario:
    """So many jobs at the rate at which 50,000 come in 30 days."""
    draw = random.Random(seed)  # noqa: S311 - a load, no secret
    days, scaling = 30 * jobs / 50_000, Scaling(serial=0.02)
    busy_s = nodes * 8 * _LOAD * days * _DAY_S / jobs / (sum(_SIZES) / len(_SIZES))
    middle = math.log(busy_s) - _SPREAD**2 / 2
    made = []
    for number, at in enumerate(sorted(draw.uniform(0, days * _DAY_S) for _ in range(jobs))):
        gpus, elastic = draw.choice(_SIZES), draw.random() < _ELASTIC
        duration_s = max(_SHORTEST_S, draw.lognormvariate(middle, _SPREAD))
        made.append(
            Job(
                name=f"job-{number:05}",
                submitted_at=at,
                work=Traced(duration_s=duration_s, gpus=gpus, scaling=scaling),
                workers=gpus,
                min_workers=max(1, gpus // 2) if elastic else gpus,
                max_workers=4 * gpus if elastic else gpus,
                start_s=30.0,
                resize_s=5.0,
                team=f"team-{number % 10}",
            )
        )
    cluster = tuple(Node(name=f"node-{number:03}", gpus=8) for number in range(nodes))
    return Scenario(name="month", nodes=cluster, jobs=tuple(made))


def main() -> None:
    """Print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50_000, help="of the month")
    parser.add_argument("--policy", action="append", help="for the month; by default adaptive and fifo")
    options = parser.parse_args()
    shared = Path(os.environ.get("KFP_VOLCANO_SHARED", Path(__file__).parents[2] / "shared"))
    workload = shared / "data/pollux-osdi21/simulator/workloads/workload-6.csv"
    if workload.exists():
        for policy in ("tiresias", "goodput"):
            run(read_trace(workload), policy, limit_s=_POLLUX_S[policy], peer_s=_PUBLISHED_S.get(policy))
    else:
        print(f"{workload} is absent: Pollux' workload is left out (set KFP_VOLCANO_SHARED)", file=sys.stderr)
    scenario = month(options.jobs)
    for policy in options.policy or ("adaptive", "fifo"):
        run(scenario, policy, limit_s=_LIMIT_S)


def run(scenario: Scenario, policy: str, *, limit_s: float, peer_s: float | None = None) -> None:
    """One simulation, and its figures."""
    begin = time.process_time()
    outcome = simulate(scenario, policy)
    took_s = time.process_time() - begin
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ended = [job.jct for job in outcome.jobs if job.jct is not None]
    case = f"{scenario.name}, {len(scenario.jobs)} jobs on {outcome.gpus} GPUs, {policy}"
    tell(case, "seconds", round(took_s, 2), "s", limit=limit_s)
    if peer_s is not None:
        peer = {"peer": "the published simulator", "peer_value": peer_s, "ratio": round(peer_s / took_s, 1)}
        tell(case, "seconds", round(took_s, 2), "s", **peer)
    tell(case, "events", outcome.events, "events")
    tell(case, "events_per_s", round(outcome.events / took_s), "1/s")
    tell(case, "peak_memory", round(peak_mb), "MB", limit=_LIMIT_MB)
    tell(case, "simulated", round(outcome.ended_at / _DAY_S, 1), "days")
    tell(case, "resizes", sum(job.resizes for job in outcome.jobs), "resizes")
    tell(case, "avg_jct", round(sum(ended) / max(1, len(ended))), "s")


def tell(case: str, metric: str, value: float, unit: str, **more: object) -> None:
    """One line."""
    print(json.dumps({"bench": "simulator", "case": case, "metric": metric, "value": value, "unit": unit, **more}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
