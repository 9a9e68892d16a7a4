# SPDX-License-Identifier: Apache-2.0
"""Retrain a model when there is new data, and deploy it when it is better: to be scheduled, and to be copied.

``check-data → If there is new data: training → stage-model → evaluate → promote-model``. All is on one volume:
the data, the models, and which of them is deployed (`volcano/launcher/registry.py`).

On this machine: ``kfp-volcano run pipelines/scheduled_retraining.py --local --volume retraining=DIR``, with the data in
``DIR/data`` (`examples/retraining/arrive.py` puts some there). Every night on a backend:
``kfp-volcano schedule create retraining pipelines/scheduled_retraining.py --cron "30 2 * * *" --host URL``.
"""

from pathlib import Path
from typing import Any

from kfp import dsl

from kfp_volcano.components.retraining import check_data, promote_model, stage_model
from kfp_volcano.pipelines.segments import always_run
from kfp_volcano.pipelines.training import elastic_training, training_task
from kfp_volcano.pipelines.volumes import mount
from kfp_volcano.schemas.names import MOUNT_PATH

PROGRAMS = Path(__file__).parent / "examples" / "retraining"


def _job(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kfp-volcano/v1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


@dsl.pipeline(name="scheduled-retraining", description="Retrain when there is new data; deploy what is better.")
def scheduled_retraining_pipeline(
    volume: str = "retraining",
    data: str = "data",
    models: str = "models",
    image: str = "kfp-volcano/retraining:0.1.0",
    queue: str = "research",
    priority: str = "batch-low",
    epochs: int = 20,
    seed: int = 0,
    batch: int = 64,
    lr: float = 0.05,
    min_workers: int = 1,
    max_workers: int = 4,
    cooldown: str = "30s",
    least_gain: float = 0.0,
    keep: int = 5,
    force: bool = False,  # noqa: FBT001, FBT002 - a pipeline parameter
) -> None:
    """Train on the folder `data` of the claim `volume` if it has changed since the last model was trained with it.

    The claim has to be ReadWriteMany. `least_gain`: by how much the new model has to be better than the one deployed.
    `force`: train in any case. `priority` is low: a retraining may wait, and gives way to who cannot.
    """
    run_id = dsl.PIPELINE_JOB_ID_PLACEHOLDER  # also what makes each run's steps new to KFP's cache
    check = check_data(volume=volume, data=data, models=models, force=force, run_id=run_id)
    mount(always_run(check, "check-data"), volume)
    with dsl.If(check.outputs["Output"] == "train", name="new-data"):
        common = {"image": image, "queue": queue, "priority": priority}
        training = {
            **common,
            "framework": "pytorch",
            "command": [
                "python",
                "train.py",
                "--data",
                f"{MOUNT_PATH}/{data}",
                "--epochs",
                f"{epochs}",
                "--seed",
                f"{seed}",
                "--batch",
                f"{batch}",
                "--lr",
                f"{lr}",
            ],
            "roles": {
                "worker": {
                    "replicas": {"min": min_workers, "max": max_workers, "initial": min_workers},
                    "resources": {"cpu": 1, "memory": "1Gi", "gpu": 1},
                },
            },
            "elasticity": {"strategy": "live", "batch": {"global": batch}, "cooldown": cooldown, "grace": "30s"},
            "checkpoint": {"volume": volume, "every": "1m", "keep": 2},
        }
        trained = elastic_training(_job("retrain", training), rounds=3, folder=str(PROGRAMS), copy_up_to=0)
        result = trained.outputs["Output"]
        staged = stage_model(volume=volume, models=models, run_id=run_id, result=result)
        mount(always_run(staged, "stage-model"), volume)
        evaluation = {
            **common,
            "framework": "custom",  # one plain program: no launcher
            "command": [
                "python",
                "evaluate.py",
                "--data",
                f"{MOUNT_PATH}/{data}",
                "--candidate",
                staged.outputs["candidate"],
                "--deployed",
                staged.outputs["deployed"],
                "--out",
                staged.outputs["evaluation"],
            ],
            "roles": {"worker": {"replicas": 1, "resources": {"cpu": 1, "memory": "1Gi"}}},
            "elasticity": {"strategy": "fixed"},
            "checkpoint": {"volume": volume},
        }
        evaluated = training_task(_job("evaluate", evaluation), folder=str(PROGRAMS), copy_up_to=0)
        evaluated.set_display_name("evaluate")
        promoted = promote_model(
            volume=volume,
            models=models,
            against=staged.outputs["against"],
            least_gain=least_gain,
            keep=keep,
            run_id=run_id,
            result=result,
        )
        mount(always_run(promoted, "promote-model"), volume).after(evaluated)
