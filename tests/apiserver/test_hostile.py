"""Texts made to break programs, in every place of a spec that takes text, change no manifest's structure."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import settings

from apiserver.judge import Judge
from apiserver.server import ApiServer
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.schemas.wording import dotted
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml
from strategies.edits import Edit, apply
from strategies.json_schema import Path, Schema, keys, texts
from strategies.texts import HOSTILE, LONG
from strategies.training_jobs import SCHEMA, examples, forced, rendered

pytestmark = pytest.mark.cluster

SPEC = max(examples(), key=lambda example: len(str(example)))
HARMLESS = "harmless"
SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def some(path: Path) -> list[str]:
    """The texts for a place: all in the profile `full`, otherwise a fifth, another for each place, and a long one."""
    if settings.default.max_examples >= 1000:
        return [*HOSTILE, *LONG]
    return [*random.Random(dotted(path)).sample(HOSTILE, len(HOSTILE) // 5), LONG[0]]


@pytest.fixture(scope="module")
def judge(apiserver: ApiServer) -> Iterator[Judge]:
    judge = Judge(apiserver.admin, "default")
    yield judge
    judge.close()


@pytest.mark.parametrize("path", [pytest.param(path, id=dotted(path)) for path in texts(SCHEMA, SPEC)])
def test_hostile_texts(judge: Judge, path: Path) -> None:
    """Wherever a text may stand, a hostile one is refused, or runs and leaves the structure as a harmless one does."""
    plain = forced(apply(SPEC, [Edit(path, HARMLESS)]))
    for text in some(path):
        check(judge, apply(SPEC, [Edit(path, text)]), plain, text)


@pytest.mark.parametrize(
    ("path", "rule"), [pytest.param(path, rule, id=dotted(path)) for path, rule in keys(SCHEMA, SPEC)]
)
def test_hostile_keys(judge: Judge, path: Path, rule: Schema) -> None:
    """Wherever a key is free, a hostile one is refused, or runs and leaves the structure as a harmless one does."""
    value = "text" if rule.get("type") == "string" else {"replicas": 1}
    plain = forced(apply(SPEC, [Edit((*path, HARMLESS), value)]))
    for text in some(path):
        check(judge, apply(SPEC, [Edit((*path, text), value)]), plain, text)


def check(judge: Judge, spec: Any, plain: list[dict[str, Any]] | None, text: str) -> None:
    """A spec with a hostile text against the Job of the same spec with a harmless one."""
    job = forced(spec)
    if job is not None and plain is not None and text:  # an empty one may mean none
        assert shape(job, text) == shape(plain, HARMLESS), repr(text[:80])
        assert list(yaml.load_all(manifest_yaml(job), Loader=SAFE_LOADER)) == job, repr(text[:80])
    try:
        accepted = training_job(spec)
    except SpecError:
        return
    assert judge.refusals(rendered(accepted)) == [], repr(text[:80])


def shape(value: Any, text: str) -> Any:
    """A manifest without its texts and the order of its objects (roles go by name): what is left is its structure."""
    if isinstance(value, dict):
        return {"key" if key == text else key: shape(child, text) for key, child in value.items()}
    if isinstance(value, list):
        return sorted((shape(item, text) for item in value), key=json.dumps)
    return "text" if isinstance(value, str) else value
