# SPDX-License-Identifier: Apache-2.0
"""`python -m simulation FIRST COUNT [STRIDE]`: runs with these seeds, one JSON object a line; a single one tells all.

A program of its own, so that processes are forked from one that has no threads.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from simulation.laws import broken_laws
from simulation.run import Simulation


def main(first: int, count: int, stride: int = 1) -> None:
    """Run, and say of each run what did not hold and where faults were."""
    for seed in range(first, first + count * stride, stride):
        with tempfile.TemporaryDirectory(prefix="kfp-volcano-simulation-") as folder:
            run = Simulation(seed, Path(folder))
            run.run()
        broken = broken_laws(run)
        told = {"story": run.story} if broken or count == 1 else {}
        faults = run.faults
        found = {
            "seed": seed,
            "broken": broken,
            "state": run.state,
            "killed": run.killed,
            "stalled": run.stalled,
            "resized": run.resized,
            "lines": len(run.printed),
            "met": faults.met,
            "hit": [[site, kind, times] for (site, kind), times in faults.hit.items()],
        }
        print(json.dumps({**found, **told}), flush=True)  # noqa: T201  # that is what it is for


main(*map(int, sys.argv[1:]))
