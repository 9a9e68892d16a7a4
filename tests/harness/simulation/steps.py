# SPDX-License-Identifier: Apache-2.0
"""The programs of the simulation's processes: the steps of the DAG and the autoscaler, as they are."""

from __future__ import annotations

import json
import logging
import os
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kfp_volcano.elastic.autoscaler import execution, fleet
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.errors import ClusterError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster import reflector
from kfp_volcano.volcano.cluster.connect import PATIENCE_S
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.launcher import backlog, conclude, log_follower, logs, report, step_record, steps
from kfp_volcano.volcano.launcher.submit import training_name
from kfp_volcano.volcano.manifests.job import manifests
from simulation.process import Inside

__all__ = ["JOB", "NAMESPACE", "RUN", "autoscaler", "step"]

NAMESPACE, RUN = "ml", "run-1"
SPEC = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": NAMESPACE},
    "spec": {
        "framework": "custom",
        "image": "train",
        "command": ["./train"],
        "queue": "research",
        "roles": {"worker": {"replicas": {"min": 2, "max": 6}, "resources": {"gpu": 1}}},
        "elasticity": {"strategy": "restart", "cooldown": "5s", "grace": "5s"},
        "checkpoint": {"volume": "checkpoints"},
    },
}
JOB = f"{NAMESPACE}/{training_name('digits', RUN, ())}"

assert report  # the charts' library takes long to import: once, before processes are forked
manifests(
    training_job(SPEC), name="digits", run_id=RUN, step="submit", workers=2
)  # so do schemas and templates to read


def step(name: str, *, attempt: int, last: bool, folder: Path) -> Callable[[Inside], Any]:
    """The program of a step of the DAG."""

    def main(inside: Inside) -> Any:
        _inhabit(inside, folder)
        os.environ["KFP_RETRY_INDEX"] = str(attempt)
        what, _, segment = name.partition("-")
        match what:
            case "submit":
                return steps.submit_step(spec=json.dumps(SPEC), values="{}", folder="", run_id=RUN)
            case "train":
                return steps.train_step(job=JOB, segment=int(segment), last=last, run_id=RUN)
            case "resize":
                return steps.resize_step(job=JOB, segment=int(segment), run_id=RUN, report=str(folder / "resize"))
            case _:
                return steps.conclude_step(job=JOB)

    return main


def autoscaler(number: int, folder: Path) -> Callable[[Inside], Any]:
    """The program beside the Job: the queue's autoscaler, again and again as its actor does."""

    def main(inside: Inside) -> None:
        cluster = _inhabit(inside, folder)
        ids = iter(range(10**6))
        while True:
            scaler = fleet.Fleet(
                cluster,
                namespace=NAMESPACE,
                queues=lambda _: ["research"],
                policies=lambda _: Guarded(Threshold()),
                identity=f"autoscaler-{number}",
                clock=inside.turns.time,
                new_id=lambda: f"request-{number}-{next(ids)}",
            )
            try:
                scaler.run()
            except ClusterError:
                inside.turns.sleep(2.0)

    return main


def _inhabit(inside: Inside, folder: Path) -> KubernetesCluster:
    """Let this process's modules live in the simulation's time, and reach its API server."""
    random.seed(inside.seed)
    logging.disable(logging.CRITICAL)
    tempfile.tempdir = str(folder)
    turns: Any = inside.turns
    for module in (reflector, backlog, log_follower, logs, fleet):
        module.threading = turns
    for timed in (steps, step_record, execution):
        timed.time = turns

    def connect(*, patience_s: float = PATIENCE_S) -> KubernetesCluster:
        return KubernetesCluster(inside, patience=replace(inside.patience, total_s=patience_s))  # type: ignore[arg-type]

    steps.connect = connect  # type: ignore[assignment]
    # Drawing charts takes longer than all the rest.
    conclude.write_report = lambda out, _: (out / "report.html").write_text("")  # type: ignore[attr-defined]
    return connect()
