# SPDX-License-Identifier: Apache-2.0
"""What a search varies, as the command line says it."""

from __future__ import annotations

import pytest

from kfp_volcano.errors import SpecError
from kfp_volcano.volcano.launcher.searching.space import Dimension, has_grid, space, varied

WIRE = {"spec": {"queue": "q", "env": {"LR": "0.1"}}}


def test_lists_and_distributions_are_understood() -> None:
    """Values are YAML, and 1e-4 is a number, which YAML itself denies."""
    given = {
        "elasticity.batch.global": "32,64",
        "elasticity.batch.rule": "constant,linear",
        "env.LR": "loguniform(1e-4, 1e-1)",
        "elasticity.batch.factor": "1e-8,0.5",
        "checkpoint.keep": "randint(1,5)",
    }
    assert space(given, WIRE) == [
        Dimension(path="elasticity.batch.global", kind="choice", values=(32, 64)),
        Dimension(path="elasticity.batch.rule", kind="choice", values=("constant", "linear")),
        Dimension(path="env.LR", kind="loguniform", values=(1e-4, 1e-1)),
        Dimension(path="elasticity.batch.factor", kind="choice", values=(1e-8, 0.5)),
        Dimension(path="checkpoint.keep", kind="randint", values=(1, 5)),
    ]


def test_values_of_environment_variables_are_what_was_written() -> None:
    """Not what YAML makes of them."""
    (found,) = space({"env.FLAG": "true, 1e-3,007"}, WIRE)
    assert found.values == ("true", "1e-3", "007")


def test_all_that_is_not_understood_is_told_at_once() -> None:
    """With its place, and with what would be right."""
    given = {
        "env.A": "normal(0,1)",
        "env.B": "uniform(1,1)",
        "env.C": "loguniform(0,1)",
        "env.D": "uniform(a,b)",
        "env.E": "uniform(nan,1)",
        "env.F": "1,",
        "checkpoint.keep": "1,[",
        "queue.name": "1,2",
    }
    with pytest.raises(SpecError) as caught:
        space(given, WIRE)
    assert [problem.path.removeprefix("--param ") for problem in caught.value.problems] == list(given)
    with pytest.raises(SpecError, match="nothing to vary"):
        space({}, WIRE)


def test_a_trial_s_spec_has_its_values_and_environment_variables_are_texts() -> None:
    """For Kubernetes takes no others."""
    found = varied(WIRE, {"env.LR": 0.01, "roles.worker.env.X": 3, "elasticity.batch.global": 32})
    assert found["spec"]["env"] == {"LR": "0.01"}
    assert found["spec"]["roles"]["worker"]["env"] == {"X": "3"}
    assert found["spec"]["elasticity"]["batch"]["global"] == 32
    assert WIRE["spec"]["env"] == {"LR": "0.1"}


def test_only_lists_have_a_grid() -> None:
    """A distribution has no end of values."""
    lists = space({"env.A": "1,2,3", "env.B": "4,5"}, WIRE)
    assert has_grid(lists)
    assert not has_grid([*lists, *space({"env.C": "uniform(0,1)"}, WIRE)])
