# SPDX-License-Identifier: Apache-2.0
"""`python -m storms FIRST COUNT [STRIDE]`: runs with these seeds, one JSON object a line; a single one tells all.

A program of its own: modules are made to live in the storm's time, and the same seed is the same run each time.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import time
from random import Random
from uuid import UUID

if sys.flags.hash_randomization:  # the order of sets is part of a run
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})

from kfp_volcano.elastic.autoscaler import execution, fleet, leading
from kfp_volcano.volcano.cluster import reflector, store
from storms.storm import Storm

LAST = 60
"""Lines of a story that are told of a run that went wrong."""


class _Uuids:
    """In place of the module `uuid`."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def uuid4(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)


def _inhabit(storm: Storm) -> None:
    """Let the modules of all programs live in the storm's time."""
    random.seed(storm.seed)
    turns = storm.turns
    store.uuid = _Uuids(storm.seed)
    for module in (reflector, fleet, leading):
        module.threading = turns
    for timed in (execution, reflector, fleet):
        timed.time = turns


def main(first: int, count: int, stride: int = 1) -> None:
    """Run, and say of each run what did not hold."""
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + count * stride, stride):
        began = time.perf_counter()
        storm = Storm(seed)
        _inhabit(storm)
        storm.run()
        found = {
            "seed": seed,
            "broken": storm.problems[:5],
            "happened": storm.happened,
            "killed": storm.killed,
            "written": len(storm.witness.writes),
            "hit": [[site, kind, times] for (site, kind), times in storm.faults.hit.items()],
            "seconds": round(time.perf_counter() - began, 2),
        }
        story = storm.story if count == 1 else storm.story[-LAST:] if storm.problems else []
        print(json.dumps({**found, "story": story}), flush=True)  # noqa: T201 - that is what it is for


main(*map(int, sys.argv[1:]))
