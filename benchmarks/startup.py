# SPDX-License-Identifier: Apache-2.0
"""How long the command line takes to answer, beside an interpreter that does nothing, in alternate rounds."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from statistics import median

_COMMANDS = (["--help"], ["--version"], ["jobs", "--help"], ["simulate", "--help"])
_BOUND_S = 0.3


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    for arguments in _COMMANDS:
        ours, floor = [], []
        for _ in range(rounds):
            floor.append(_seconds("-c", "pass"))
            ours.append(_seconds("-m", "kfp_volcano", *arguments))
        figure = {
            "bench": "startup",
            "case": f"kfp-volcano {' '.join(arguments)}, bound {_BOUND_S} s",
            "metric": "seconds_more",
            "value": round(median(ours) - median(floor), 4),
            "unit": "s",
            "peer": "python -c pass",
            "peer_value": round(median(floor), 4),
            "ratio": round(median(floor) / median(ours), 3),
        }
        print(json.dumps(figure), flush=True)


def _seconds(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
