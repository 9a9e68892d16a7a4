# SPDX-License-Identifier: Apache-2.0
"""Settings tried out: what is made of them, what is best, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfp_volcano.elastic.simulator.figures import figures
from kfp_volcano.errors import SpecError
from kfp_volcano.volcano.launcher.laboratory.contestants import Contestant, contestants
from kfp_volcano.volcano.launcher.laboratory.sweep import axes, swept, variants
from outcomes import outcome

OURS = Contestant("threshold", "threshold")
FIFO = Contestant("fifo", "fifo")


def problems(given: list[str], *policies: Contestant) -> list[str]:
    """What is wrong, in words."""
    with pytest.raises(SpecError) as caught:
        variants(policies, axes(given))
    return [str(each) for each in caught.value.problems]


def test_every_combination_of_the_values_is_a_policy() -> None:
    """For each policy that has the setting; others are left alone."""
    made = variants([FIFO, OURS], axes(["threshold.up.idleShare=0.1..0.3/3", "guards.cooldown=0s,5m"]))
    assert len(made) == 6
    assert {each.of for each in made} == {"threshold"}
    assert made[1].contestant.name == "threshold (threshold.up.idleShare=0.1, guards.cooldown=5m)"
    assert made[1].document["spec"]["guards"] == {"cooldown": "5m"}
    assert made[1].values == (0.1, "5m")


def test_a_setting_of_a_policy_file_is_changed_beside_what_the_file_says(tmp_path: Path) -> None:
    """All else stays."""
    path = tmp_path / "mine.yaml"
    path.write_text(
        "apiVersion: kfp-volcano/v1\nkind: Policy\nmetadata: {name: mine}\n"
        "spec: {queues: ['*'], policy: adaptive, guards: {benefit: 2}}\n"
    )
    (mine,) = contestants([str(path)])
    (made,) = variants([mine], axes(["adaptive.idleShare=0.6"]))
    assert made.document["spec"] == {
        "queues": ["*"], "policy": "adaptive", "guards": {"benefit": 2}, "adaptive": {"idleShare": 0.6},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["threshold.up.idleShare"], "is not KEY=V1,V2"),
        (["threshold.up.idleShare=0.1..0.9/1"], "idleShare"),
        (["adaptive.idleShare=0.6"], "no policy given has adaptive.idleShare"),
        (["threshold.up.idelShare=0.1"], "idelShare"),
        (["threshold.up.idleShare=7"], "idleShare"),
        (["guards.cooldown=0..1/900", "guards.benefit=1,2"], "1800 combinations"),
        (["guards.benefit=1", "guards.benefit=2"], "given twice"),
    ],
)
def test_what_cannot_be_tried_is_told(given: list[str], said: str) -> None:
    """With its place."""
    assert any(said in each for each in problems(given, OURS, FIFO))


def test_the_best_is_best_by_the_metric_and_jobs_that_do_not_end_are_never_best() -> None:
    """Less of a completion time, more of goodput."""
    given = axes(["threshold.up.idleShare=0.1,0.2,0.3"])
    made = variants([OURS], given)
    found = [(figures(outcome("p", wait)),) for wait in (30.0, 10.0, 20.0)]
    best = swept(given, "avg_jct", made, found).best
    assert best is made[1]
    assert swept(given, "goodput", made, found).best is made[1]
    assert swept(given, "avg_wait", made, found).story()[0].endswith(f"{made[1].contestant.name}.")


def test_policies_are_names_or_files_and_all_that_are_wrong_are_told(tmp_path: Path) -> None:
    """A name that is unknown, a file that is not there, one that is no Policy, a name given twice."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("apiVersion: kfp-volcano/v1\nkind: Policy\nmetadata: {name: x}\nspec: {queues: ['*'], polcy: y}\n")
    with pytest.raises(SpecError) as caught:
        contestants(["fifo", "fifo", "best", str(tmp_path / "none.yaml"), str(bad)])
    told = "\n".join(str(each) for each in caught.value.problems)
    for said in ("--policy best", "none.yaml", "polcy", "fifo is given twice"):
        assert said in told
