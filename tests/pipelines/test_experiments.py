# SPDX-License-Identifier: Apache-2.0
"""Experiments in pipelines: what is laid out, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kfp import dsl

from kfp_volcano.errors import SpecError
from kfp_volcano.pipelines.experiments import compare_trainings
from kfp_volcano.pipelines.running import compile_pipeline

if TYPE_CHECKING:
    from pathlib import Path

SPEC: dict[str, Any] = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "t"},
    "spec": {
        "framework": "pytorch",
        "image": "i",
        "command": ["python", "train.py", "--seed", "{seed}"],
        "queue": "q",
        "roles": {"worker": {"replicas": 1, "resources": {"gpu": 1}}},
        "elasticity": {"strategy": "live", "batch": {"global": 8}},
        "checkpoint": {"volume": "checkpoints"},
    },
}


def test_the_example_compiles_for_a_backend_with_each_group_and_seed(root: Path, tmp_path: Path) -> None:
    """One loop over all trials, two at a time: while gangs wait no elastic training would grow."""
    compile_pipeline(root / "pipelines" / "compare_strategies.py", tmp_path / "ir.yaml")
    ir = next(iter(yaml.safe_load_all((tmp_path / "ir.yaml").read_text())))
    (loop,) = [task for task in ir["root"]["dag"]["tasks"].values() if "parameterIterator" in task]
    trials = json.loads(loop["parameterIterator"]["items"]["raw"])
    assert len({(each["group"], each["seed"]) for each in trials}) == len(trials) == 12
    assert loop["iteratorPolicy"] == {"parallelismLimit": 2}


def refused(**given: Any) -> list[str]:
    """The places of what is wrong."""
    whole = {"spec": SPEC, "groups": {"a": {}, "b": {"queue": "other"}}, "seeds": [0, 1], **given}

    def pipeline():
        compare_trainings(**whole)

    with pytest.raises(SpecError) as caught:
        dsl.pipeline(name="p")(pipeline)
    return [problem.path for problem in caught.value.problems]


def test_all_that_is_wrong_with_an_experiment_is_told_at_once() -> None:
    """Its arguments first."""
    found = refused(groups={"A": {}}, seeds=[1, 1], mode="best", budget="money", parallel=-1)
    assert found == ["groups.A", "groups", "seeds", "mode", "parallel", "budget"]


def test_a_group_whose_spec_is_wrong_is_named() -> None:
    """With the place in its spec."""
    found = refused(groups={"a": {}, "b": {"elasticity.batch.globle": 3}})
    assert len(found) == 1
    assert found[0].startswith("b: ")
    assert "batch" in found[0]
