"""How fast the simulator is: one month of a cluster of 1,000 GPUs with 50,000 jobs, on one core.

Jobs come evenly over 30 days, ask for 1 to 16 GPUs, have lognormal durations that fill 80 % of the cluster at the sizes
they ask for, and four of five are elastic, from half of that to four times as much. All of it follows from a seed. One
line a policy: seconds of processor time, what was simulated in one of them, and the memory of the process at its peak.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import time

from kfp_volcano.elastic.simulator.scenario import Job, Node, Scenario
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.traced import Scaling, Traced

_SIZES = (1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16)
_DAY_S, _SPREAD, _LOAD, _SHORTEST_S = 86_400.0, 1.5, 0.8, 30.0
_ELASTIC = 0.8
_LIMIT_S, _LIMIT_MB = 120.0, 1024
"""What the month under `adaptive` may take."""


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
    """Print one JSON object for each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--policy", action="append", help="by default adaptive and fifo")
    options = parser.parse_args()
    scenario = month(options.jobs)
    for policy in options.policy or ("adaptive", "fifo"):
        begin = time.process_time()
        outcome = simulate(scenario, policy)
        took_s = time.process_time() - begin
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        ended = [job.jct for job in outcome.jobs if job.jct is not None]
        case = {"policy": policy, "jobs": len(scenario.jobs), "gpus": outcome.gpus}
        for metric, value, unit, limit in (
            ("seconds", round(took_s, 1), "s", _LIMIT_S),
            ("events", outcome.events, "", None),
            ("events_per_s", round(outcome.events / took_s), "1/s", None),
            ("peak_memory", round(peak_mb), "MB", _LIMIT_MB),
            ("simulated", round(outcome.ended_at / _DAY_S, 1), "days", None),
            ("resizes", sum(job.resizes for job in outcome.jobs), "", None),
            ("avg_jct", round(sum(ended) / max(1, len(ended))), "s", None),
        ):
            line = {"bench": "simulator", "case": case, "metric": metric, "value": value, "unit": unit}
            print(json.dumps(line if limit is None else {**line, "limit": limit}), flush=True)


if __name__ == "__main__":
    main()
