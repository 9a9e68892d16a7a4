# SPDX-License-Identifier: Apache-2.0
"""The exit step: the training's report, and nothing left behind."""

from kfp import dsl

from kfp_volcano.components.step import step


@step()
def conclude_job(job: str, report: dsl.Output[dsl.HTML], summary: dsl.Output[dsl.Markdown]) -> None:
    """Write the report and remove what must not stay; runs after success, failure and Terminate alike.

    It takes no final status, which KFP does not have after Terminate, but looks at the Job itself.

    Args:
        job: The Job as namespace/name.
        report: The report, one self-contained page.
        summary: The same in a few lines.
    """
    from kfp_volcano.volcano.launcher import steps

    steps.conclude_step(job=job, report=report.path, summary=summary.path)
