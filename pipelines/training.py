# SPDX-License-Identifier: Apache-2.0
"""`elastic_training` and `training_task`: a TrainingJob in a pipeline of one's own, as a graph or as one task."""

from typing import Any, Optional, Union

from kfp import dsl

from kfp_volcano.components.collect import collect_results
from kfp_volcano.components.submit import submit_job
from kfp_volcano.components.whole import run_training
from kfp_volcano.errors import SpecError
from kfp_volcano.pipelines.given import Spec, given, identity
from kfp_volcano.pipelines.segments import always_run, following, without_retry
from kfp_volcano.pipelines.volumes import Claim, mount
from kfp_volcano.schemas.quantities import quantity

__all__ = ["Training", "elastic_training", "training_task"]

COPY_UP_TO = "256Mi"
"""Up to this size a model is copied to KFP's store, from where any later step is given it."""


class Training:
    """An elastic training in a pipeline: settings go to its workers, outputs come from its last step.

    What sets something on a task (`set_accelerator_limit`, `set_env_variable`, the functions of `kfp.kubernetes`) may
    be used on it: it sets it on `submit`, which passes it on to the workers.
    """

    def __init__(self, submit: dsl.PipelineTask, collect: dsl.PipelineTask) -> None:
        self.submit = submit
        """The task that creates the Job."""
        self.collect = collect
        """The task that takes in the results."""

    @property
    def outputs(self) -> Any:
        """`model`, `metrics` and `Output`, the result as JSON."""
        return self.collect.outputs

    @property
    def name(self) -> str:
        """What another task comes `.after`."""
        return str(self.collect.name)

    def __getattr__(self, name: str) -> Any:
        """As `submit` has it; what returns the task returns this."""
        found = getattr(self.submit, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            return self if result is self.submit else result

        return call


def elastic_training(
    spec: Spec,
    *,
    rounds: int = 4,
    folder: Optional[str] = None,
    volume: Optional[Claim] = None,
    copy_up_to: Union[int, str] = COPY_UP_TO,
) -> Training:
    """Lay out an elastic training in the pipeline being defined.

    ``submit → (train-1 → If resized: resize-1 → train-2 → … → train-N) → collect``, with `conclude` as exit task of
    what is in parentheses. The last segment executes further resizes itself, so elasticity never ends.

    Args:
        spec: A TrainingJob: a mapping, YAML text, the path of a YAML file, or a pipeline parameter that holds the text.
            Any value in a mapping may be a pipeline parameter or an earlier step's output. What is known now is
            checked now; the whole is checked again when the Job is submitted.
        rounds: How many segments the graph shows, at least 1.
        folder: Where the command runs on the embedded cluster; by default the spec file's folder.
        volume: The claim that `conclude` and `collect` mount, to audit the samples and take in the model: by default
            the spec's own where the spec names no namespace, empty for none. To be said where the spec as a whole is
            known in the run only.
        copy_up_to: A model of up to this size (bytes, or as `1Gi`) is copied to KFP's store; a larger one stays on the
            volume, and the artifact says where.

    Returns:
        Its outputs are `model`, `metrics` and `Output`, the result as JSON; what is set on it reaches the workers.

    Raises:
        SpecError: The spec, as far as it is known, is wrong; lists every problem.
    """
    limit = _size(copy_up_to)
    read = given(spec, folder, volume)
    follow = following(rounds, read.volume)
    submit = submit_job(**read._asdict(), **identity())
    always_run(submit, "submit")
    training = follow(job=submit.output)
    training.set_display_name("training")
    collect = collect_results(job=submit.output, run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, copy_up_to=limit)
    collect.after(training)
    if read.volume:
        mount(collect, read.volume)
    return Training(submit, always_run(collect, "collect"))


def training_task(
    spec: Spec,
    *,
    folder: Optional[str] = None,
    volume: Optional[Claim] = None,
    copy_up_to: Union[int, str] = COPY_UP_TO,
) -> dsl.PipelineTask:
    """Run a training as one task of the pipeline being defined: for sweeps of many, and for trainings of fixed size.

    The task creates the Job, follows it to its end, executing resizes where it is elastic, and takes in its results.
    Two pods a training instead of a dozen; the graph does not show the resizes, and there is no exit task: when the run
    is terminated the step itself ends the Job (`volcano.launcher.termination`).

    Args:
        spec: As for `elastic_training`.
        folder: Where the command runs on the embedded cluster; by default the spec file's folder.
        volume: As for `elastic_training`; here it is the task that mounts it.
        copy_up_to: As for `elastic_training`.

    Returns:
        The task: its outputs are `model`, `metrics` and `Output`, the result as JSON. What is set on it
        (resources, environment, tolerations, volumes …) reaches the workers.

    Raises:
        SpecError: The spec, as far as it is known, is wrong; lists every problem.
    """
    limit = _size(copy_up_to)
    read = given(spec, folder, volume)
    task = without_retry(run_training(**read._asdict(), copy_up_to=limit, **identity()), "train")
    return mount(task, read.volume) if read.volume else task


def _size(text: Union[int, str]) -> int:
    try:
        return int(quantity(text))
    except ValueError as error:
        raise SpecError(f"{error}: bytes, or for instance 1Gi", source="copy_up_to") from error
