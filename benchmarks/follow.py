# SPDX-License-Identifier: Apache-2.0
"""How long after a Job's creation its first line is on the terminal, against the cluster's own time for it.

Prints one JSON object a line. A Job on the embedded cluster is submitted and followed as the steps do; its program
prints when it printed, by the clock of the same machine. The cluster's own time ends there, and the follower's when the
line has been said; the difference is what following adds. Samples, machine and versions go to standard error.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.submit import submit

_LIMIT_S = 1.0
"""What following may add."""


def sample(cluster: EmbeddedCluster, number: int) -> tuple[float, float]:
    """One Job: (the cluster's seconds to the first line, the seconds until it was on the terminal)."""
    program = "import time; print('printed', time.time(), flush=True)"
    document = {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": f"job-{number}", "namespace": "bench"},
        "spec": {
            "framework": "custom",
            "image": "none",
            "command": [sys.executable, "-c", program],
            "queue": "research",
            "roles": {"worker": {"replicas": 1, "resources": {"gpu": 1}}},
        },
    }
    printed: list[tuple[float, float]] = []

    def say(line: str) -> None:
        if " | printed " in line:
            printed.append((float(line.rpartition(" ")[2]), time.time()))

    began = time.time()
    made = submit(cluster, training_job(document), run_id=f"run-{number}", step="submit", now=began)
    follow(cluster, JobRef.of(made), holder="train-1:bench", heir="run:bench", last=True, clock=time.time, say=say)
    at, said = printed[0]
    return at - began, said - began


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10)
    count = parser.parse_args().samples
    with tempfile.TemporaryDirectory() as folder:
        cluster = EmbeddedCluster(Path(folder))
        samples = [sample(cluster, number) for number in range(count)]
        cluster.shutdown(grace_s=0)
    added = [total - own for own, total in samples]
    print(
        f"{platform.machine()}, Python {platform.python_version()}, {threading.active_count()} threads", file=sys.stderr
    )
    print(
        f"samples (cluster s, total s): {[(round(own, 3), round(all_, 3)) for own, all_ in samples]}", file=sys.stderr
    )
    own, total = (statistics.median(column) for column in zip(*samples, strict=True))
    figures = [
        {"metric": "time", "value": total, "peer": "the cluster's own time", "peer_value": own, "ratio": own / total},
        {"metric": "added_max", "value": max(added), "limit": _LIMIT_S},
    ]
    for figure in figures:
        rounded = {key: round(each, 3) if isinstance(each, float) else each for key, each in figure.items()}
        print(json.dumps({"bench": "follow", "case": "first line on the terminal", "unit": "s", **rounded}))
    sys.exit(max(added) > _LIMIT_S)


main()
