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
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.schemas.wording import dotted
from strategies.edits import Edit, apply
from strategies.training_jobs import examples, forced, rendered, training_jobs

pytestmark = pytest.mark.cluster

SPECS = 2 * settings.default.max_examples
"""2,000 in the profile `full`, a tenth otherwise."""
SEEDED = settings(max_examples=SPECS, derandomize=settings.default.max_examples < 1000)


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[str]]:
    """What became of the specs: a generator that makes only good or only bad ones would prove nothing."""
    tally: Counter[str] = Counter()
    yield tally
    rare = [kind for kind, count in tally.items() if tally.total() >= SPECS and count < tally.total() / 30]
    assert not rare, f"too few specs are {rare}: {tally}"


@pytest.fixture(scope="module")
def judge(apiserver: ApiServer) -> Iterator[Judge]:
    judge = Judge(apiserver.admin, "default")
    yield judge
    judge.close()


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
    if not verdict(spec):
        refusals = judge.refusals(rendered(training_job(spec)))
        tally["accepted"] += 1
        return f"validate accepts it, the server refuses {refusals}" if refusals else ""
    job = forced(spec)
    refusals = judge.refusals(job) if job else []
    tally["refused by both" if refusals else "refused by validate alone"] += 1
    return _at_another_place(judge, example, changes, refusals) if refusals else ""


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
    """Whether one of the places found is in the object that was changed, or around it.

    The object, not the field: a field that is added may ask for another beside it.
    """
    places = [dotted(change.path if len(change.path) <= _TOP else change.path[:-1]) for change in changes]
    return any(path.startswith(place) or place.startswith(path) for path in found for place in places)


_TOP = 2
"""`spec.image` is a field of the spec, and the whole spec would be no place."""


@given(case=training_jobs())
@SEEDED
def test_validate_and_the_server_agree(
    judge: Judge, tally: Counter[str], case: tuple[dict[str, Any], list[Edit]]
) -> None:
    """For any example, changed in any field, `validate` and the API server say the same of the same place."""
    example, changes = case
    assert disagreement(judge, example, changes, tally) == ""


@pytest.mark.parametrize("number", range(len(examples())))
def test_examples_run_as_they_are(judge: Judge, number: int) -> None:
    """The server takes an example's Job and everything that Volcano makes of it."""
    assert judge.refusals(rendered(training_job(examples()[number]))) == []
