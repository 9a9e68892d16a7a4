"""The step that creates the run's Volcano Job."""

from kfp import dsl

from kfp_volcano.components.image import STEP_IMAGE


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def submit_job(spec: str, values: str, folder: str, run_id: str) -> str:
    """Create the Volcano Job of a TrainingJob, or adopt the one an earlier attempt of this step created.

    Args:
        spec: The TrainingJob as JSON with holes (`kfp_volcano.schemas.template`).
        values: What fills the holes.
        folder: The folder the training command runs in on the embedded cluster.
        run_id: The pipeline run's id; names the Job.

    Returns:
        The Job as namespace/name.
    """
    from kfp_volcano.volcano.launcher import steps

    return steps.submit_step(spec=spec, values=values, folder=folder, run_id=run_id)
