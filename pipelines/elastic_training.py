# SPDX-License-Identifier: Apache-2.0
"""An elastic training of handwritten digits: an ordinary kfp pipeline, to be copied.

Run it on this machine: ``kfp-volcano run pipelines/elastic_training.py --local``; compile it for a backend:
``kfp-volcano compile pipelines/elastic_training.py -o elastic_training.yaml``.
"""

from pathlib import Path

from kfp import dsl

from kfp_volcano.pipelines.training import elastic_training

DIGITS = Path(__file__).parent / "examples" / "digits"


@dsl.pipeline(name="elastic-training", description="Train a digits classifier that resizes while it trains.")
def elastic_training_pipeline(
    epochs: int = 520,
    seed: int = 0,
    batch: int = 64,
    lr: float = 0.05,
    initial_workers: int = 2,
    min_workers: int = 2,
    max_workers: int = 8,
    queue: str = "research",
    cooldown: str = "5s",
) -> None:
    """Train with as many workers as the queue can spare, between `min_workers` and `max_workers`."""
    spec = {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits", "labels": {"kfp-volcano/team": "vision"}},
        "spec": {
            "framework": "pytorch",
            "image": "kfp-volcano/digits:0.1.0",
            "command": [
                "python",
                "train.py",
                "--epochs",
                f"{epochs}",
                "--seed",
                f"{seed}",
                "--batch",
                f"{batch}",
                "--lr",
                f"{lr}",
            ],
            "queue": queue,
            "roles": {
                "worker": {
                    "replicas": {"min": min_workers, "max": max_workers, "initial": initial_workers},
                    "resources": {"cpu": 1, "memory": "1Gi", "gpu": 1},
                },
            },
            "elasticity": {"strategy": "live", "batch": {"global": batch}, "cooldown": cooldown, "grace": "30s"},
            "checkpoint": {"volume": "checkpoints", "every": "1m", "keep": 3},
        },
    }
    elastic_training(spec, rounds=6, folder=str(DIGITS))
