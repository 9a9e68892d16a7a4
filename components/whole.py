# SPDX-License-Identifier: Apache-2.0
"""A whole training as one step."""

from kfp import dsl

from kfp_volcano.components.figures import published
from kfp_volcano.components.step import step
from kfp_volcano.components.task_config import PASSED_ON_BUT_VOLUMES_KEPT, said


@step(task_config_passthroughs=PASSED_ON_BUT_VOLUMES_KEPT)
def run_training(
    spec: str,
    values: str,
    folder: str,
    volume: str,
    copy_up_to: int,
    run_id: str,
    task: str,
    instance: str,
    task_config: dsl.TaskConfig,
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> str:
    """Create the Job of a TrainingJob, follow it to its end, executing resizes on the way, and take in its results.

    Args:
        spec: The TrainingJob as JSON with holes (`kfp_volcano.schemas.template`).
        values: What fills the holes.
        folder: The folder the training command runs in on the embedded cluster.
        volume: The claim that this step mounts; empty if it mounts none.
        copy_up_to: The size in bytes up to which the model is copied to KFP's store; a larger one stays where it lies.
        run_id: The pipeline run's id; names the Job.
        task: This task's name in its DAG, which tells the run's trainings apart.
        instance: The id of the DAG, which tells the iterations of a loop apart.
        task_config: What the user set on this task; it goes to the workers.
        model: The trained model's files.
        metrics: Accuracy, samples, resizes.

    Returns:
        The result as JSON (`schemas/json/result.v1.schema.json`).
    """
    from kfp_volcano.volcano.launcher import steps

    job = steps.submit_step(
        spec=spec,
        values=values,
        folder=folder,
        run_id=run_id,
        part=(instance, task),
        task_config=said(task_config),
        volume=volume,
        followed=True,
    )
    try:
        steps.train_step(job=job, segment=1, last=True, run_id=run_id, alone=True)
        figures = steps.collect_step(job=job, run_id=run_id, model=model.path, copy_up_to=copy_up_to)
    finally:
        steps.conclude_step(job=job)
    return published(figures, model, metrics)
