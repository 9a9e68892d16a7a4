# SPDX-License-Identifier: Apache-2.0
"""What `validate` accepts a real API server accepts; what that refuses `validate` refuses, at the same place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from apiserver.agreement import Agreement
from apiserver.judge import Judge
from apiserver.server import ApiServer
from kfp_volcano.schemas.queue_validation import queue_tree
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.schemas.wording import dotted
from kfp_volcano.volcano.manifests import queues
from strategies.edits import Edit
from strategies.json_schema import Path
from strategies.queue_trees import forced_queues, queue_trees, tree_examples
from strategies.training_jobs import examples, forced, rendered, training_jobs

pytestmark = pytest.mark.cluster

SPECS = 2 * settings.default.max_examples
"""2,000 in the profile `full`, a tenth otherwise."""
SEEDED = settings(max_examples=SPECS, derandomize=settings.default.max_examples < 1000)
RARE = 1 / 30


@pytest.fixture(scope="module")
def judge(apiserver: ApiServer) -> Iterator[Judge]:
    judge = Judge(apiserver.admin, "default")
    yield judge
    judge.close()


def object_of_spec(path: Path) -> str:
    """The object, not the field: a field that is added may ask for another beside it.

    `spec.image` is a field of the spec, and the whole spec would be no place.
    """
    return dotted(path if len(path) <= len(("spec", "image")) else path[:-1])


def queue_of(path: Path) -> str:
    """The queue above, where there is one: that what it has is too little for those below it is told there."""
    places = [index for index, part in enumerate(path) if isinstance(part, int)]
    return dotted(path[: (places[-2:] or [0])[0] + 1])


@pytest.fixture(scope="module")
def specs(judge: Judge) -> Iterator[Agreement]:
    specs = Agreement(lambda spec: rendered(training_job(spec)), forced, judge.refusals, object_of_spec)
    yield specs
    assert specs.tally.total() < SPECS or not specs.rare(RARE), f"too few of some: {specs.tally}"


@pytest.fixture(scope="module")
def trees(judge: Judge) -> Iterator[Agreement]:
    trees = Agreement(lambda tree: queues.manifests(queue_tree(tree)), forced_queues, judge.queue_refusals, queue_of)
    yield trees
    assert trees.tally.total() < SPECS or not trees.rare(RARE), f"too few of some: {trees.tally}"


@given(case=training_jobs())
@SEEDED
def test_validate_and_the_server_agree(specs: Agreement, case: tuple[dict[str, Any], list[Edit]]) -> None:
    """For any TrainingJob, changed in any field, `validate` and the API server say the same of the same place."""
    assert specs.disagreement(*case) == ""


@given(case=queue_trees())
@SEEDED
def test_queues_and_the_server_agree(trees: Agreement, case: tuple[dict[str, Any], list[Edit]]) -> None:
    """For any QueueTree, changed in any field, its check and the API server say the same of the same queue."""
    assert trees.disagreement(*case) == ""


@pytest.mark.parametrize("number", range(len(examples())))
def test_examples_run_as_they_are(judge: Judge, number: int) -> None:
    """The server takes an example's Job and everything that Volcano makes of it."""
    assert judge.refusals(rendered(training_job(examples()[number]))) == []


@pytest.mark.parametrize("number", range(len(tree_examples())))
def test_trees_are_taken_as_they_are(judge: Judge, number: int) -> None:
    """The server takes the Queues and ResourceQuotas of an example."""
    assert judge.queue_refusals(queues.manifests(queue_tree(tree_examples()[number]))) == []
