"""What `validate` accepts a real API server accepts; what that refuses `validate` refuses, at the same place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from apiserver.judge import Judge, Refusal
from apiserver.server import ApiServer
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.training_job import TrainingJob
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.schemas.wire import build
from kfp_volcano.schemas.wording import dotted
from kfp_volcano.volcano.manifests.job import job_manifest
from strategies.edits import Edit, apply
from strategies.training_jobs import training_jobs

pytestmark = pytest.mark.cluster

SPECS = 2 * settings.default.max_examples
"""2,000 in the profile `full`, a tenth otherwise."""
SEEDED = settings(max_examples=SPECS, derandomize=settings.default.max_examples < 1000)


@pytest.fixture(scope="module")
def judge(apiserver: ApiServer) -> Iterator[Judge]:
    judge = Judge(apiserver.admin, "default")
    yield judge
    judge.close()


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[str]]:
    """What the specs were; a generator that makes only good or only bad ones proves nothing."""
    tally: Counter[str] = Counter()
    yield tally
    total = tally.total()
    if total:
        print(f"\n{total} specs: {dict(tally)}")


def rendered(job: TrainingJob) -> dict[str, Any]:
    """The Job at its largest size, as the submitting step renders it."""
    name = names.job_name(job.name, "run")
    return job_manifest(job, name=name, run_id="run", step="submit", workers=job.workers.replicas.max)


def forced(spec: Any) -> dict[str, Any] | None:
    """The Job of a spec that was never checked; None where no Job can be made of it at all."""
    try:
        return rendered(build(spec))
    except Exception:  # noqa: BLE001 # a spec of any shape raises anything
        return None


def verdict(spec: Any) -> list[str]:
    """Where `validate` finds fault with a spec; nothing where it finds none."""
    try:
        training_job(spec)
    except SpecError as error:
        return [problem.path for problem in error.problems]
    return []


def disagreement(judge: Judge, example: dict[str, Any], changes: Sequence[Edit], tally: Counter[str]) -> str:
    """How `validate` and the API server disagree about a changed example; empty where they agree."""
    spec = apply(example, changes)
    found = verdict(spec)
    if not found:
        refusals = judge.refusals(rendered(training_job(spec)))
        tally["accepted by both" if not refusals else "disagreed on"] += 1
        return f"validate accepts it, the server refuses {refusals}" if refusals else ""
    job = forced(spec)
    refusals = judge.refusals(job) if job else []
    tally[
        "refused by both"
        if refusals
        else "refused by validate before there is a Job"
        if job is None
        else "refused by validate, harmless to the server"
    ] += 1
    if refusals:
        return _at_another_place(judge, example, changes, refusals)
    return ""


def _at_another_place(
    judge: Judge, example: dict[str, Any], changes: Sequence[Edit], refusals: Sequence[Refusal]
) -> str:
    """Each change that alone makes the server refuse must be where `validate` finds fault."""
    for change in changes if len(changes) > 1 else []:
        alone = forced(apply(example, [change]))
        if alone and judge.refusals(alone):
            refusals = judge.refusals(alone)
            found = verdict(apply(example, [change]))
            if not _meets(found, [change]):
                return f"{change}: the server refuses {refusals}, validate finds fault with {found}"
    found = verdict(apply(example, changes))
    return "" if _meets(found, changes) else f"the server refuses {refusals}, validate finds fault with {found}"


def _meets(found: Sequence[str], changes: Sequence[Edit]) -> bool:
    """Whether one of the places found is a changed one, lies inside it or around it."""
    places = [dotted(change.path) for change in changes]
    return any(path.startswith(place) or place.startswith(path) for path in found for place in places)


@given(training_jobs())
@SEEDED
def test_validate_and_the_server_agree(
    judge: Judge, tally: Counter[str], case: tuple[dict[str, Any], list[Edit]]
) -> None:
    """For any example, changed in any field, `validate` and the API server say the same of the same place."""
    example, changes = case
    assert disagreement(judge, example, changes, tally) == ""
