# SPDX-License-Identifier: Apache-2.0
"""The autoscaler's own log as a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfp_volcano.elastic.autoscaler.decisions.decision_log import DecisionLog
from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.policies.snapshot import ElasticJob, NodeState, PendingGang, QueueSnapshot
from kfp_volcano.elastic.simulator.reading.assumed import Assumed
from kfp_volcano.elastic.simulator.reading.trace import read_trace
from kfp_volcano.elastic.simulator.traced import Scaling
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.policy import DEFAULT
from kfp_volcano.schemas.records import Measured

AT = 1_790_000_000.0
JOB = ElasticJob(
    key="ml/digits",
    workers=2,
    running=2,
    min_workers=1,
    max_workers=8,
    sizes=(1, 2, 4, 8),
    gpus_per_worker=1,
    nodes=("n1", "n1"),
    created_at=AT - 100.0,
    remaining_s=500.0,
    priority=7,
)
GANG = PendingGang(key="ml/big", pods=(4, 4), since=AT - 20.0)


def logged(folder, *snapshots):
    """The log that an autoscaler writes of these."""
    log = DecisionLog(folder, policies=lambda _: DEFAULT, by="me", clock=lambda: AT)
    for each in snapshots:
        log.decided(each, policy_for(DEFAULT).decide(each), {}, lag_s=0.0)
    log.close()


def snapshot(at, *jobs, pending=()):
    held = sum(job.workers for job in jobs)
    nodes = {"n1": NodeState(free=16 - held)}
    return QueueSnapshot(
        queue="research", at=at, limit_gpus=16, allocated_gpus=held, nodes=nodes, jobs=jobs, pending=pending
    )


def test_jobs_and_gangs_of_a_log_are_replayed(tmp_path):
    """What was done while it was watched, and what was left at last, are a job's work."""
    grown = replace(JOB, workers=4, running=4, nodes=("n1",) * 4, remaining_s=200.0)
    later = replace(grown, remaining_s=100.0)
    logged(tmp_path, snapshot(AT, JOB, pending=(GANG,)), snapshot(AT + 50, grown), snapshot(AT + 150, later))
    scenario = read_trace(tmp_path, assumed=Assumed(scaling=Scaling()))
    digits, big = scenario.jobs
    assert (digits.name, digits.submitted_at, digits.workers, digits.max_workers) == ("ml/digits", 0.0, 2, 8)
    assert digits.work.alone_s(2) == pytest.approx(50 + 2 * 100 + 2 * 100)
    assert (big.name, big.submitted_at, big.workers, big.gpus_per_worker) == ("ml/big", 80.0, 2, 4)
    assert (scenario.gpus, scenario.queues[0].name) == (16, "research")
    assert "1 gangs that are not elastic" in scenario.notes[0]


def test_speeds_that_were_measured_are_the_job_s(tmp_path):
    """Instead of what is assumed where nothing is known."""
    measured = (Measured(workers=2, throughput=10.0, batch=8), Measured(workers=4, throughput=15.0, batch=8))
    logged(tmp_path, snapshot(AT, replace(JOB, measured=measured)))
    (digits,) = read_trace(tmp_path).jobs
    assert digits.work.alone_s(2) / digits.work.alone_s(4) == pytest.approx(1.5)


@pytest.mark.parametrize("empty", [True, False])
def test_a_log_without_jobs_is_refused(tmp_path, empty):
    """And so is a folder without a log."""
    if not empty:
        logged(tmp_path, snapshot(AT))
    with pytest.raises(SpecError, match="decision log"):
        read_trace(tmp_path)
