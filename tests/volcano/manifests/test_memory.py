# SPDX-License-Identifier: Apache-2.0
"""Rendering keeps nothing: however many specs a process renders, its memory is that of one."""

from __future__ import annotations

import ast
import gc
import sys
from pathlib import Path
from typing import Any

from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.manifests.job import manifests
from kfp_volcano.volcano.manifests.yaml_text import manifest_yaml

ROOT = Path(__file__).resolve().parents[3]
RENDERING = ("schemas", "volcano/manifests")
BOUND = {"load_schema", "_template", "_part", "_patch", "_fields", "_block_schema", "_codec", "_parts_of", "meet"}
"""Functions whose cache has as many entries as the package has schemas, templates, places and types; or, `meet`, that
are made for one call."""


def decorated() -> dict[str, list[ast.expr]]:
    """The functions of the packages that render, each with its decorators."""
    found: dict[str, list[ast.expr]] = {}
    for folder in RENDERING:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    found.setdefault(node.name, []).extend(node.decorator_list)
    return found


def test_no_cache_grows_without_bound() -> None:
    """A cache has a largest size, or its keys are the package's own."""
    boundless = {"cache", "functools.cache", "lru_cache(maxsize=None)", "functools.lru_cache(maxsize=None)"}
    unbound = {
        name for name, decorators in decorated().items() for each in decorators if ast.unparse(each) in boundless
    }
    assert unbound == BOUND


def spec(index: int) -> dict[str, Any]:
    """A spec with no text in common with another, where a text is free."""
    return {
        "apiVersion": "kfp-volcano/v1",
        "kind": "TrainingJob",
        "metadata": {"name": f"n-{index}", "namespace": f"ns-{index}", "labels": {f"label-{index}": f"v-{index}"}},
        "spec": {
            "framework": "custom",
            "image": f"image-{index}",
            "command": ["run", f"--number={index}", f"a sentence about number {index}"],
            "queue": f"queue-{index}",
            "env": {f"NAME_{index}": f"value {index}"},
            "volumes": {f"volume-{index}": {"claim": f"claim-{index}", "mount": f"/mnt/{index}"}},
            "roles": {"worker": {"replicas": 2, "resources": {"cpu": f"{index + 1}m", "memory": f"{index + 1}Mi"}}},
            "placement": {"nodes": {f"key-{index}": [f"value-{index}"]}, "affinity": {"podAntiAffinity": {}}},
            "podPatch": {"metadata": {"annotations": {f"annotation-{index}": "x"}}},
        },
    }


def render(index: int) -> None:
    """From a mapping to text."""
    job = training_job(spec(index))
    assert manifest_yaml(manifests(job, name=f"j-{index}", run_id=f"r-{index}", step="s", workers=2))


def test_what_is_alive_after_many_specs_is_what_was_alive_after_few() -> None:
    """Not one object a spec lives on, once the bounded caches are full."""
    for index in range(400):  # of each spec some forty texts are new; the largest cache holds 4096
        render(index)
    gc.collect()
    before = sys.getallocatedblocks()
    for index in range(400, 600):
        render(index)
    gc.collect()
    assert sys.getallocatedblocks() - before < 200
