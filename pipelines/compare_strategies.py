# SPDX-License-Identifier: Apache-2.0
"""Fixed or elastic, and with which batch? An experiment on handwritten digits: to be run, and to be copied.

On this machine: ``kfp-volcano run pipelines/compare_strategies.py --local --out compared``, then look at
``compared/comparison.html``. For a backend: ``kfp-volcano submit pipelines/compare_strategies.py --host URL``.
"""

from pathlib import Path
from typing import Any

from kfp import dsl

from kfp_volcano.pipelines.experiments import compare_trainings

DIGITS = Path(__file__).parent / "examples" / "digits"
SEEDS = (0, 1, 2)
ELASTIC = {"min": 1, "max": 4, "initial": 1}
GROUPS: dict[str, dict[str, Any]] = {
    "fixed-small": {"roles.worker.replicas": 1},
    "fixed-large": {"roles.worker.replicas": 4},
    "elastic": {"roles.worker.replicas": ELASTIC},
    "elastic-linear": {
        "roles.worker.replicas": ELASTIC,
        "elasticity.batch": {"rule": "linear", "perWorker": 64, "baseWorkers": 1},
    },
}


@dsl.pipeline(name="compare-strategies", description="Compare groups of trainings at an equal budget, seed by seed.")
def compare_strategies_pipeline(epochs: int = 240, lr: float = 0.05, queue: str = "research") -> None:
    """Train each group with each seed on as many GPUs as the queue can spare; an epoch is the same for all.

    Few epochs are over before the workers that an elastic training is given have started; and while gangs wait for
    the queue's GPUs none is given any, so two trainings are there at a time.
    """
    spec = {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits"},
        "spec": {
            "framework": "pytorch",
            "image": "kfp-volcano/digits:0.1.0",
            "command": ["python", "train.py", "--epochs", f"{epochs}", "--seed", "{seed}", "--lr", f"{lr}"],
            "queue": queue,
            "roles": {"worker": {"replicas": 1, "resources": {"cpu": 1, "memory": "1Gi", "gpu": 1}}},
            "elasticity": {"strategy": "live", "batch": {"global": 64}, "cooldown": "5s", "grace": "30s"},
            "checkpoint": {"volume": "checkpoints", "every": "1m", "keep": 2},
        },
    }
    compare_trainings(spec, GROUPS, seeds=SEEDS, parallel=2, folder=str(DIGITS))
