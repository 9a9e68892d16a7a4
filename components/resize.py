# SPDX-License-Identifier: Apache-2.0
"""The step that executes a requested resize while training goes on."""

from kfp import dsl

from kfp_volcano.components.step import step


@step()
def resize_job(job: str, segment: int, run_id: str, report: dsl.Output[dsl.Markdown]) -> str:
    """Execute, or verify and record, the resize that ended the segment before.

    Args:
        job: The Job as namespace/name.
        segment: Number of the segment that ended.
        run_id: The pipeline run's id.
        report: Before and after, the reason and the cost.

    Returns:
        How the resize ended: `Done`, `RolledBack`, `Expired` or `Refused`.
    """
    from kfp_volcano.volcano.launcher import steps

    return steps.resize_step(job=job, segment=segment, run_id=run_id, report=report.path)
