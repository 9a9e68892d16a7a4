# SPDX-License-Identifier: Apache-2.0
"""The step that takes in what the training produced."""

from kfp import dsl

from kfp_volcano.components.figures import published
from kfp_volcano.components.step import step


@step()
def collect_results(
    job: str, run_id: str, copy_up_to: int, model: dsl.Output[dsl.Model], metrics: dsl.Output[dsl.Metrics]
) -> str:
    """Check from the ledgers that each sample was used exactly once an epoch, and publish model and metrics.

    Args:
        job: The Job as namespace/name.
        run_id: The pipeline run's id.
        copy_up_to: The size in bytes up to which the model is copied to KFP's store; a larger one stays where it lies.
        model: The trained model's files.
        metrics: Accuracy, samples, resizes.

    Returns:
        The result as JSON (`schemas/json/result.v1.schema.json`).
    """
    from kfp_volcano.volcano.launcher import steps

    figures = steps.collect_step(job=job, run_id=run_id, model=model.path, copy_up_to=copy_up_to)
    return published(figures, model, metrics)
