# SPDX-License-Identifier: Apache-2.0
"""A field is explained from the published schema."""

from __future__ import annotations

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.explain import explain
from kfp_volcano.schemas.structure import child_rule, load_schema, resolve

ROOT = load_schema("training-job.v1")


def paths(rule, path=()):
    """Every path that a spec may have, with a name where one is free."""
    yield ".".join(path)
    rule = resolve(rule, ROOT)
    inner = resolve(rule.get("items", {}), ROOT)
    rule = inner if "properties" in inner and "properties" not in rule else rule
    for key in rule.get("properties", {}):
        yield from paths(child_rule(rule, key, ROOT), (*path, key))
    if isinstance(rule.get("additionalProperties"), dict):
        yield from paths(rule["additionalProperties"], (*path, "name"))


@pytest.mark.parametrize("path", list(paths(ROOT)))
def test_every_field_is_explained(path):
    """What it is, of which type, and what is below it."""
    text = explain(path)
    assert text.startswith(f"FIELD: {path or 'TrainingJob'} <")
    assert len(text.splitlines()) > 2


def test_a_field_that_is_not_there_is_told_with_what_is():
    """A slip of the pen is named, at its place in the path."""
    with pytest.raises(SpecError, match=r"spec\.roles\.worker\.resources\.gpus: no such field \(did you mean gpu\?\)"):
        explain("spec.roles.worker.resources.gpus")


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("TrainingJob", "FIELD: TrainingJob <mapping>"),
        ("TrainingJob.spec.queue", "FIELD: TrainingJob.spec.queue <text> (required)"),
        ("QueueTree.spec.queues.deserved", "FIELD: QueueTree.spec.queues.deserved"),
        ("GPUPools.spec.pools.any.givesBelow", "DEFAULT:\n  50"),
        ("ResourceProfiles.profiles.any.gpuShare", "FIELD: ResourceProfiles.profiles.any.gpuShare"),
    ],
)
def test_a_field_may_begin_with_a_kind(field, told):
    """Of each kind of document that people write."""
    assert told in explain(field)
