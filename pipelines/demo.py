# SPDX-License-Identifier: Apache-2.0
"""The demo: an elastic training alone in a queue, and another team that comes for half of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kfp_volcano.errors import UnavailableError
from kfp_volcano.pipelines.local import LocalRun
from kfp_volcano.schemas.names import PROGRESS, SPEC, job_name
from kfp_volcano.schemas.records import Progress, parse
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.manifests.job import job_manifest

if TYPE_CHECKING:
    import threading

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest

__all__ = ["demo_run", "other_team"]

COMES_AT = 0.1
"""The other team comes when this share of the training is done, and the training has grown."""
GANG_GPUS = 4
STAYS_S = 12
"""How long the other team's gang runs."""


def demo_run(out: Path, *, run_id: str) -> LocalRun:
    """The elastic training pipeline with its defaults, on two logical nodes of four GPUs."""
    return LocalRun(
        path=Path(__file__).parent / "elastic_training.py", name=None, values={}, out=out, run_id=run_id, nodes="2x4"
    )


def other_team(cluster: Cluster, over: threading.Event) -> None:
    """Wait until the training has grown and is well under way, then submit a gang that does not fit beside it."""
    informer = Informer(cluster, ("Job",))
    informer.start()
    try:
        version = 0
        while not over.is_set():
            version = informer.wait(version, timeout_s=1.0)
            if any(_well_under_way(job) for job in informer.objects("Job")):
                cluster.create(_gang())
                return
    except UnavailableError:
        return  # the run has ended, and the cluster with it
    finally:
        informer.stop()


def _well_under_way(job: Manifest) -> bool:
    text = annotation(job, PROGRESS)
    if annotation(job, SPEC) is None or text is None:
        return False
    progress = parse(Progress, text)
    return progress.workers > GANG_GPUS and progress.step >= COMES_AT * progress.total_steps


def _gang() -> Manifest:
    """Another team's Job: four GPUs, all or none. What it does with them is its own matter."""
    job = training_job(
        {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "acoustic-model", "namespace": "speech", "labels": {"kfp-volcano/team": "speech"}},
            "spec": {
                "framework": "custom",
                "image": "speech/acoustic:2",
                "command": ["sleep", str(STAYS_S)],
                "queue": "research",
                "roles": {"worker": {"replicas": GANG_GPUS, "resources": {"cpu": 1, "memory": "1Gi", "gpu": 1}}},
                "elasticity": {"strategy": "fixed"},
            },
        }
    )
    name = job_name(job.name, "demo")
    return job_manifest(job, name=name, run_id="demo-other-team", step="demo", workers=GANG_GPUS)
