# SPDX-License-Identifier: Apache-2.0
"""The contracts on a Job, read: its spec, its open request, what became of the last ones.

Tolerant, because anybody may write annotations: what cannot be read counts as not there.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import Hold, Phase, Progress, ResizeOutcome, ResizeRequest, parse, parse_list
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import annotation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = [
    "answered",
    "failed",
    "find_job",
    "hold_of",
    "job_key",
    "latest_outcome",
    "open_outcome",
    "open_request",
    "outcomes",
    "progress_of",
    "read",
    "read_list",
    "request_of",
    "spec_of",
]

T = TypeVar("T")


def job_key(manifest: Manifest) -> str:
    """namespace/name."""
    return f"{manifest['metadata'].get('namespace', '')}/{manifest['metadata']['name']}"


def find_job(jobs: Iterable[Manifest], namespace: str, name: str) -> Manifest | None:
    """The Job of that name, None where there is none."""
    key = f"{namespace}/{name}"
    return next((job for job in jobs if job_key(job) == key), None)


def spec_of(job: Manifest) -> TrainingJob | None:
    """The TrainingJob that a Job was made from, None where it is not one of ours."""
    text = annotation(job, names.SPEC)
    return None if text is None else _training_job(text)


def request_of(job: Manifest) -> ResizeRequest | None:
    """The last request, answered or not."""
    return read(ResizeRequest, annotation(job, names.REQUEST))


def hold_of(job: Manifest) -> Hold | None:
    """What a person wants of the autoscaler."""
    return read(Hold, annotation(job, names.HOLD))


def progress_of(job: Manifest) -> Progress | None:
    """Where training stands."""
    return read(Progress, annotation(job, names.PROGRESS))


def outcomes(job: Manifest) -> list[ResizeOutcome]:
    """What became of requests, newest last."""
    return read_list(ResizeOutcome, annotation(job, names.RESIZE))


def open_outcome(job: Manifest) -> ResizeOutcome | None:
    """The resize that is being executed."""
    return next((outcome for outcome in reversed(outcomes(job)) if not outcome.phase.final), None)


def latest_outcome(job: Manifest) -> ResizeOutcome | None:
    """What became of the last request that anybody took up."""
    return next(reversed(outcomes(job)), None)


def open_request(job: Manifest, now: float) -> ResizeRequest | None:
    """The request that is owed an answer at `now`: being executed, or neither answered nor expired."""
    request = request_of(job)
    if request is None:
        return None
    outcome = next((outcome for outcome in outcomes(job) if outcome.id == request.id), None)
    if outcome is None:
        return request if now < request.expires else None
    return None if outcome.phase.final else request


def answered(job: Manifest) -> bool:
    """Whether no resize is being executed and the last request has its final outcome."""
    request = request_of(job)
    done = {outcome.id for outcome in outcomes(job) if outcome.phase.final}
    return open_outcome(job) is None and (request is None or request.id in done)


def failed(outcome: ResizeOutcome) -> bool:
    """Whether a resize ended without the size it was for."""
    return outcome.phase in {Phase.ROLLED_BACK, Phase.EXPIRED, Phase.REFUSED}


@lru_cache(maxsize=256)
def _training_job(text: str) -> TrainingJob | None:
    try:
        return training_job(json.loads(text))
    except (SpecError, ValueError, TypeError, AttributeError):
        return None


def read(kind: type[T], text: str | None) -> T | None:
    """A record in an annotation, None where there is none that can be read."""
    try:
        return None if text is None else parse(kind, text)
    except (ValueError, TypeError, AttributeError):
        return None


def read_list(kind: type[T], text: str | None) -> list[T]:
    """The records in an annotation, none where it cannot be read."""
    try:
        return parse_list(kind, text)
    except (ValueError, TypeError, AttributeError):
        return []
