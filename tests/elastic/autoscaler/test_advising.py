# SPDX-License-Identifier: Apache-2.0
"""Advice stands on the Job, and is written when it changes."""

from __future__ import annotations

from kfp_volcano.elastic.autoscaler.advising import Adviser
from kfp_volcano.elastic.autoscaler.contracts import read
from kfp_volcano.elastic.policies.requests import RequestAdvice
from kfp_volcano.schemas.names import ADVICE
from kfp_volcano.schemas.records import Advice
from kfp_volcano.volcano.cluster.annotations import annotation


def advice(resource, advised):
    return RequestAdvice(
        job="ml/digits", resource=resource, requested=1, peak=1, advised=advised, explanation=f"less {resource}"
    )


def test_all_of_a_job_s_advice_is_one_annotation(cluster):
    """With the sentences of each resource; not written again while it is the same."""
    cluster.submit()
    adviser, cpu, memory = Adviser(cluster), advice("cpu", 3500), advice("memory", 2**30 * 1000)
    adviser.carry_out([memory, cpu], 5.0)
    adviser.carry_out([cpu, memory], 9.0)
    stands = read(Advice, annotation(cluster.job(), ADVICE))
    assert stands == Advice(at=5.0, explanation="less cpu; less memory", cpu="3500m", memory=str(2**30))
    adviser.carry_out([cpu], 9.0)
    assert read(Advice, annotation(cluster.job(), ADVICE)) == Advice(at=9.0, explanation="less cpu", cpu="3500m")


def test_a_job_that_is_gone_is_advised_no_more(cluster):
    """Nothing happens."""
    Adviser(cluster).carry_out([advice("cpu", 100)], 5.0)
