# SPDX-License-Identifier: Apache-2.0
"""The part of a training's graph that follows its Job: the story of the run, with the exit task around it."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from kfp import dsl
from kfp.dsl import pipeline_context

from kfp_volcano.components.conclude import conclude_job
from kfp_volcano.components.resize import resize_job
from kfp_volcano.components.train import train_segment
from kfp_volcano.errors import SpecError
from kfp_volcano.pipelines.given import here
from kfp_volcano.pipelines.volumes import Claim, mount

__all__ = ["always_run", "following", "outside_of_any_pipeline", "without_retry"]

MOST_ROUNDS = 12
"""Each round is one more nested pipeline and up to ten more pods: past a dozen the graph is no longer readable."""


def following(rounds: int, volume: Claim) -> Any:
    """The pipeline, for use in another, that follows a Job (`job`, namespace/name) to its end.

    ``train-1 → If resized: resize-1 → train-2 → … → train-N``, with `conclude` as exit task. A pipeline of its own,
    because KFP lets no output out of an exit handler, and has none within a loop or a condition. `conclude` mounts the
    claim `volume`, if it is named. Raises SpecError where `rounds` is out of bounds.
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise SpecError(f"rounds: {rounds} is outside 1..{MOST_ROUNDS}", source="elastic_training")
    if volume and not here():
        return functools.partial(_following_with_volume(rounds), volume=volume)
    return _following(rounds, here())


@functools.lru_cache(maxsize=2 * MOST_ROUNDS)
def _following(rounds: int, _here: bool) -> Any:  # noqa: FBT001 - part of the key: retries depend on it
    with outside_of_any_pipeline():
        first = _segments(rounds)

        @dsl.pipeline(name="training")
        def training(job: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - kfp takes a return annotation for an output
            with dsl.ExitHandler(always_run(conclude_job(job=job), "conclude"), name="elastic training"):
                first(job=job).set_display_name("segments")

    return training


@functools.lru_cache(maxsize=MOST_ROUNDS)
def _following_with_volume(rounds: int) -> Any:
    """The same with the claim as an input, for it may be known in the run only."""
    with outside_of_any_pipeline():
        first = _segments(rounds)

        @dsl.pipeline(name="training")
        def training(job: str, volume: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as above
            conclude = mount(always_run(conclude_job(job=job), "conclude"), volume)
            with dsl.ExitHandler(conclude, name="elastic training"):
                first(job=job).set_display_name("segments")

    return training


def always_run(task: dsl.PipelineTask, name: str) -> dsl.PipelineTask:
    """A cache hit would skip the training: caching is off for each step. Retries are for an hour and longer.

    KFP counts `backoff_max_duration` from the first attempt on, so its default of an hour would end a long step's
    retry; a retried step finds its Job by the run's id and adopts it.
    """
    task.set_caching_options(enable_caching=False)
    if not here():  # on this machine a step fails for a reason that stays
        task.set_retry(num_retries=2, backoff_duration="5s", backoff_factor=2.0, backoff_max_duration="604800s")
    return task.set_display_name(name)


def without_retry(task: dsl.PipelineTask, name: str) -> dsl.PipelineTask:
    """A train step fails because the training failed, which the Job's own retries have dealt with already."""
    task.set_caching_options(enable_caching=False)
    return task.set_display_name(name)


def _segments(rounds: int) -> Any:
    """The first of `rounds` nested pipelines, each of which holds its train step and, under a condition, the rest.

    Nesting, because on a backend a task may come `.after` a pipeline but not after an `If`.
    """
    following = None
    for number in range(rounds, 0, -1):
        following = _segment(number, last=number == rounds, following=following)
    return following


def _segment(number: int, *, last: bool, following: Any) -> Any:
    @dsl.pipeline(name=f"segment-{number}")
    def segment(job: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - kfp takes a return annotation for an output
        train = train_segment(job=job, segment=number, last=last, run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
        without_retry(train, f"train-{number}")
        if following is not None:
            with dsl.If(train.output == "resized", name=f"resized-{number}"):
                resize = resize_job(job=job, segment=number, run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
                always_run(resize, f"resize-{number}")
                rest = following(job=job)
                rest.after(resize)
                rest.set_display_name(f"segment {number + 1}")

    return segment


@contextlib.contextmanager
def outside_of_any_pipeline() -> Iterator[None]:
    """Let nested pipelines be defined while another is being defined, which kfp's decorator refuses."""
    holder = pipeline_context.Pipeline
    enclosing = holder._default_pipeline  # noqa: SLF001 - there is no public way
    holder._default_pipeline = None  # noqa: SLF001
    try:
        yield
    finally:
        holder._default_pipeline = enclosing  # noqa: SLF001
