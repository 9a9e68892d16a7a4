"""The exit step: the run's report, and nothing left behind."""

from kfp import dsl

from kfp_volcano.components.image import STEP_IMAGE


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def conclude_run(run_id: str, report: dsl.Output[dsl.HTML], summary: dsl.Output[dsl.Markdown]) -> None:
    """Write the report and remove what must not stay; runs after success, failure and Terminate alike.

    It takes no final status, which KFP does not have after Terminate, but looks at the Job itself.

    Args:
        run_id: The pipeline run's id, by which it finds the Job.
        report: The report, one self-contained page.
        summary: The same in a few lines.
    """
    from kfp_volcano.volcano.launcher import steps

    steps.conclude_step(run_id=run_id, report=report.path, summary=summary.path)
