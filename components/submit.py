# SPDX-License-Identifier: Apache-2.0
"""The step that creates the run's Volcano Job."""

from kfp import dsl

from kfp_volcano.components.step import step
from kfp_volcano.components.task_config import PASSED_ON, said


@step(task_config_passthroughs=PASSED_ON)
def submit_job(
    spec: str,
    values: str,
    folder: str,
    volume: str,
    run_id: str,
    task: str,
    instance: str,
    task_config: dsl.TaskConfig,
) -> str:
    """Create the Volcano Job of a TrainingJob, or adopt the one an earlier attempt of this step created.

    Args:
        spec: The TrainingJob as JSON with holes (`kfp_volcano.schemas.template`).
        values: What fills the holes.
        folder: The folder the training command runs in on the embedded cluster.
        volume: The claim that the steps after this one mount; empty if they mount none.
        run_id: The pipeline run's id; names the Job.
        task: This task's name in its DAG, which tells the run's trainings apart.
        instance: The id of the DAG, which tells the iterations of a loop apart.
        task_config: What the user set on this task; it goes to the workers.

    Returns:
        The Job as namespace/name.
    """
    from kfp_volcano.volcano.launcher import steps

    return steps.submit_step(
        spec=spec,
        values=values,
        folder=folder,
        run_id=run_id,
        part=(instance, task),
        task_config=said(task_config),
        volume=volume,
    )
