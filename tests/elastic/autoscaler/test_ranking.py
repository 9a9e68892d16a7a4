# SPDX-License-Identifier: Apache-2.0
"""Classes are changed on the Job together with the reason, and a person's choice is where a policy starts from."""

from __future__ import annotations

import pytest

from kfp_volcano.elastic.autoscaler.ranking import PERSON, Ranker, base_class, class_changes, rank
from kfp_volcano.elastic.policies.priorities import RankChange, RankReason
from kfp_volcano.schemas.records import ClassChange

VALUES = {"batch-low": 1000, "batch": 10_000, "interactive": 100_000, "batch-low-surplus": 500, "batch-surplus": 9500}


@pytest.fixture
def cluster(cluster):
    """With the classes that a policy moves Jobs among."""
    for name, value in VALUES.items():
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        cluster.create({**kind, "metadata": {"name": name}, "value": value})
    cluster.submit(priority="batch-low")
    return cluster


def rises(to="batch", *, before="batch-low"):
    why = "digits has waited for 45 min: digits rises"
    return RankChange(job="ml/digits", from_class=before, to_class=to, reason=RankReason.WAITED_LONG, explanation=why)


def carry_out(cluster, *changes):
    return list(Ranker(cluster, identity="autoscaler").carry_out(changes, VALUES, cluster.now))


def test_a_change_stands_on_the_job_with_its_reason(cluster):
    """Class and record come in one patch; the base stays that of the spec."""
    carry_out(cluster, rises())
    job = cluster.job()
    assert job["spec"]["priorityClassName"] == "batch"
    [noted] = class_changes(job)
    assert (noted.from_class, noted.to_class, noted.reason, noted.by) == (
        "batch-low",
        "batch",
        "WaitedLong",
        "autoscaler",
    )
    assert base_class(job) == "batch-low"


def test_what_was_changed_meanwhile_is_left_alone(cluster):
    """A decision about a class that the Job has no more is out of date."""
    carry_out(cluster, rises(), rises("interactive"))
    assert cluster.job()["spec"]["priorityClassName"] == "batch"


def test_a_person_s_choice_is_the_new_base(cluster):
    """Also where it is the class that the Job has."""
    chosen = ClassChange(from_class="batch-low", to_class="batch", reason=PERSON, explanation="x", by="ada", at=0.0)
    rank(cluster, cluster.job(), chosen, VALUES)
    rank(cluster, cluster.job(), chosen, VALUES)
    assert base_class(cluster.job()) == "batch"
    assert len(class_changes(cluster.job())) == 2


def test_a_class_that_the_job_cannot_have_stops_nothing(cluster):
    """The change is left out, the next ones are made."""
    [(job, _)] = carry_out(cluster, rises("absent"), rises())
    assert job == "ml/digits"
    assert cluster.job()["spec"]["priorityClassName"] == "batch"


def test_a_job_that_is_gone_stops_nothing(cluster):
    """Nobody is there to be ranked."""
    cluster.delete("Job", "digits", "ml")
    cluster.settle()
    carry_out(cluster, rises())
