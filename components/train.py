# SPDX-License-Identifier: Apache-2.0
"""The step that follows the Job through one segment of the training."""

from kfp_volcano.components.step import step


@step()
def train_segment(job: str, segment: int, last: bool, run_id: str) -> str:  # noqa: FBT001
    """Follow the Job until it ends or a resize is requested: its logs, its progress, why it waits.

    Args:
        job: The Job as namespace/name.
        segment: Number of the segment, from 1.
        last: Whether no resize step follows; then this step executes further resizes itself.
        run_id: The pipeline run's id.

    Returns:
        `resized` when a resize is to be executed, `done` when the training has succeeded. A failed training fails
        the step.
    """
    from kfp_volcano.volcano.launcher import steps

    return steps.train_step(job=job, segment=segment, last=last, run_id=run_id)
