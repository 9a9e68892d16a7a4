"""`elastic_training`: the steps of an elastic training, for a pipeline of one's own."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional, Union

from kfp import dsl
from kfp.dsl import pipeline_channel, pipeline_context
from kfp.dsl.types import type_utils

from kfp_volcano.components.collect import collect_results
from kfp_volcano.components.conclude import conclude_run
from kfp_volcano.components.resize import resize_job
from kfp_volcano.components.submit import submit_job
from kfp_volcano.components.train import train_segment
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import template
from kfp_volcano.schemas.names import ENV_CLUSTER
from kfp_volcano.schemas.validation import Unknown, check_known, parse

__all__ = ["elastic_training"]

MOST_ROUNDS = 12
"""Each round is one more nested pipeline and up to ten more pods: past a dozen the graph is no longer readable."""

Spec = Union[str, Path, Mapping[str, Any], pipeline_channel.PipelineChannel]


def elastic_training(spec: Spec, *, rounds: int = 4, folder: Optional[str] = None) -> dsl.PipelineTask:
    """Lay out an elastic training in the pipeline being defined.

    ``submit → train-1 → If resized: resize-1 → train-2 → … → train-N → collect``, with `conclude` as exit task. The
    last segment executes further resizes itself, so elasticity never ends.

    Args:
        spec: A TrainingJob: a mapping, YAML text, the path of a YAML file, or a pipeline parameter that holds the text.
            Any value in a mapping may be a pipeline parameter or an earlier step's output. What is known now is
            checked now; the whole is checked again when the Job is submitted.
        rounds: How many segments the graph shows, at least 1.
        folder: Where the command runs on the embedded cluster; by default the spec file's folder.

    Returns:
        The `collect` task: its outputs are `model`, `metrics` and `Output`, the result as JSON.

    Raises:
        SpecError: The spec, as far as it is known, is wrong; lists every problem.
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise SpecError(f"rounds: {rounds} is outside 1..{MOST_ROUNDS}", source="elastic_training")
    if isinstance(spec, Path) or (isinstance(spec, str) and spec.endswith((".yaml", ".yml")) and "\n" not in spec):
        path = Path(spec)
        folder = folder or str(path.resolve().parent)
        spec = _read(path)
    if isinstance(spec, str) and not _channels(spec):
        spec = parse(spec)  # a text with parameters in it is parsed when they are known
    if isinstance(spec, Mapping):
        problems = check_known(_with_unknowns(spec))
        if problems:
            raise SpecError(problems, source="the TrainingJob")

    text, values = template.split(spec, type_of=_type, pieces_of=_pieces)
    with dsl.ExitHandler(_conclude(), name="elastic training"):
        submit = submit_job(
            spec=text,
            values=template.SEPARATOR.join(str(value) for value in values),
            folder=_folder_here(folder),
            run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        )
        _always_run(submit, "submit")
        training = _segments(rounds)(job=submit.output)
        training.set_display_name("training")
        collect = collect_results(job=submit.output, run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
        collect.after(training)
        return _always_run(collect, "collect")


def _folder_here(folder: Optional[str]) -> str:
    """The command's folder for a run on this machine; a compiled pipeline names no path of the machine it came from."""
    return folder or "" if os.environ.get(ENV_CLUSTER) else ""


def _conclude() -> dsl.PipelineTask:
    return _always_run(conclude_run(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER), "conclude")


def _always_run(task: dsl.PipelineTask, name: str) -> dsl.PipelineTask:
    """A cache hit would skip the training: caching is off for each step. Retries are for an hour and longer.

    KFP counts `backoff_max_duration` from the first attempt on, so its default of an hour would end a long step's
    retry; a retried step finds its Job by the run's id and adopts it.
    """
    task.set_caching_options(enable_caching=False)
    if not os.environ.get(ENV_CLUSTER):  # on this machine a step fails for a reason that stays
        task.set_retry(num_retries=2, backoff_duration="5s", backoff_factor=2.0, backoff_max_duration="604800s")
    return task.set_display_name(name)


def _segments(rounds: int) -> Any:
    """The first of `rounds` nested pipelines, each of which holds its train step and, under a condition, the rest.

    Nesting, because on a backend a task may come `.after` a pipeline but not after an `If`.
    """
    following = None
    with _outside_of_any_pipeline():
        for number in range(rounds, 0, -1):
            following = _segment(number, last=number == rounds, following=following)
    return following


def _segment(number: int, *, last: bool, following: Any) -> Any:
    @dsl.pipeline(name=f"segment-{number}")
    def segment(job: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - kfp takes a return annotation for an output
        train = train_segment(job=job, segment=number, last=last, run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
        _without_retry(train, f"train-{number}")
        if following is not None:
            with dsl.If(train.output == "resized", name=f"resized-{number}"):
                resize = resize_job(job=job, segment=number, run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)
                _always_run(resize, f"resize-{number}")
                rest = following(job=job)
                rest.after(resize)
                rest.set_display_name(f"segment {number + 1}")

    return segment


def _without_retry(task: dsl.PipelineTask, name: str) -> dsl.PipelineTask:
    """A train step fails because the training failed, which the Job's own retries have dealt with already."""
    task.set_caching_options(enable_caching=False)
    return task.set_display_name(name)


@contextlib.contextmanager
def _outside_of_any_pipeline() -> Iterator[None]:
    """Let nested pipelines be defined while another is being defined, which kfp's decorator refuses."""
    holder = pipeline_context.Pipeline
    enclosing = holder._default_pipeline  # noqa: SLF001 - there is no public way
    holder._default_pipeline = None  # noqa: SLF001
    try:
        yield
    finally:
        holder._default_pipeline = enclosing  # noqa: SLF001


def _read(path: Path) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}", source=str(path)) from error


def _channels(value: object) -> list[Any]:
    return list(pipeline_channel.extract_pipeline_channels_from_any(value))


def _type(value: object) -> Optional[str]:
    """The type of a value that only the run knows, None of one known now."""
    if not isinstance(value, pipeline_channel.PipelineChannel):
        return None
    return str(type_utils.get_parameter_type_name(value.channel_type))


def _pieces(text: str) -> list[Any]:
    """A text cut into what is known and the pipeline parameters and outputs between."""
    channels = {channel.pattern: channel for channel in _channels(text)}
    if not channels:
        return [text]
    cut = re.split("(" + "|".join(re.escape(pattern) for pattern in channels) + ")", text)
    return [channels.get(piece, piece) for piece in cut if piece]


def _with_unknowns(value: Any) -> Any:
    if _type(value) is not None or (isinstance(value, str) and _channels(value)):
        return Unknown()
    if isinstance(value, Mapping):
        return {key: _with_unknowns(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_unknowns(item) for item in value]
    return value
