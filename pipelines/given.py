# SPDX-License-Identifier: Apache-2.0
"""The TrainingJob that a pipeline is given: read, checked as far as it is known, and made ready to travel to a step."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

from kfp import dsl
from kfp.dsl import pipeline_channel, pipeline_context, tasks_group
from kfp.dsl.types import type_utils

from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.pipelines.volumes import Claim, claim_of
from kfp_volcano.platform_files import resource_profiles
from kfp_volcano.schemas import template
from kfp_volcano.schemas.names import ENV_CLUSTER
from kfp_volcano.schemas.profiles import filled
from kfp_volcano.schemas.validation import Unknown, check_known, parse

__all__ = ["Given", "GivenSpecs", "Spec", "folder_here", "given", "here", "identity", "joined_specs"]

Spec = Union[str, Path, Mapping[str, Any], pipeline_channel.PipelineChannel]
"""A mapping, YAML text, the path of a YAML file, or a pipeline parameter that holds the text."""


class Given(NamedTuple):
    """A spec in the form in which steps take it."""

    spec: str
    """JSON with holes (`kfp_volcano.schemas.template`)."""
    values: str
    """What fills the holes."""
    folder: str
    """Where the command runs on the embedded cluster."""
    volume: Claim
    """The claim that steps mount; empty for none."""


def given(spec: Spec, folder: Optional[str], volume: Optional[Claim]) -> Given:
    """Read and check a spec. Raises SpecError for all that is known to be wrong with it."""
    if isinstance(spec, Path) or (isinstance(spec, str) and spec.endswith((".yaml", ".yml")) and "\n" not in spec):
        path = Path(spec)
        folder = folder or str(path.resolve().parent)
        spec = _read(path)
    if isinstance(spec, str) and not _channels(spec):
        spec = parse(spec)  # a text with parameters in it is parsed when they are known
    if isinstance(spec, Mapping):
        # The platform's profiles are known here; where the pipeline runs they need not be.
        profiles = resource_profiles()
        problems = check_known(_with_unknowns(spec), profiles=profiles)
        spec, _ = filled(spec, profiles)
        if problems:
            raise SpecError(problems, source="the TrainingJob")
    claim = claim_of(spec, volume)
    text, values = template.split(spec, type_of=_type, pieces_of=_pieces)
    return Given(text, template.SEPARATOR.join(str(value) for value in values), folder_here(folder), claim)


class GivenSpecs(NamedTuple):
    """Several specs in the form in which steps take them."""

    specs: str
    """JSON with holes: specs by name."""
    values: str
    """What fills the holes."""
    folder: str
    """As for `Given`."""
    volume: Claim
    """As for `Given`; one for all."""


def joined_specs(specs: Mapping[str, Mapping[str, Any]], folder: Optional[str], volume: Optional[Claim]) -> GivenSpecs:
    """Check specs that travel together. Raises SpecError for all that is known to be wrong with them."""
    profiles = resource_profiles()
    problems = [
        Problem(f"{name}: {problem.path}", problem.message, problem.remedy)
        for name, spec in specs.items()
        for problem in check_known(_with_unknowns(spec), profiles=profiles)
    ]
    if problems:
        raise SpecError(problems, source="the TrainingJobs")
    whole = {name: filled(spec, profiles)[0] for name, spec in specs.items()}
    text, values = template.split(whole, type_of=_type, pieces_of=_pieces)
    claim = claim_of(next(iter(whole.values())), volume)
    return GivenSpecs(text, template.SEPARATOR.join(str(value) for value in values), folder_here(folder), claim)


def here() -> bool:
    """Whether the pipeline is defined for a run on this machine, not for a backend."""
    return os.environ.get(ENV_CLUSTER, "").startswith("embedded:")  # on Kubernetes it names what commands talk to


def folder_here(folder: Optional[str]) -> str:
    """The command's folder for a run on this machine; a compiled pipeline names no path of the machine it came from."""
    return folder or "" if here() else ""


def identity() -> dict[str, str]:
    """What names a run's trainings: the inputs `run_id`, `task` and `instance` of the step that creates the Job.

    KFP names a DAG anew in each run on this machine. Where that is not needed to tell the iterations of a loop apart it
    is left out, so that a run can be taken up again.
    """
    pipeline = pipeline_context.Pipeline.get_default_pipeline()
    loop = any(isinstance(group, tasks_group.ParallelFor) for group in (pipeline.groups if pipeline else ()))
    return {
        "run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        "task": dsl.PIPELINE_TASK_NAME_PLACEHOLDER,
        "instance": dsl.PIPELINE_TASK_ID_PLACEHOLDER if loop or not here() else "",
    }


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
    if "{{" not in text:  # as each of them is written
        return [text]
    channels = {channel.pattern: channel for channel in _channels(text)}
    if not channels:
        return [text]
    cut = re.split("(" + "|".join(re.escape(pattern) for pattern in channels) + ")", text)
    return [channels.get(piece, piece) for piece in cut if piece]


def _with_unknowns(value: Any) -> Any:
    if isinstance(value, str):
        return Unknown() if "{{" in value and _channels(value) else value
    if _type(value) is not None:
        return Unknown()
    if isinstance(value, Mapping):
        return {key: _with_unknowns(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_unknowns(item) for item in value]
    return value
