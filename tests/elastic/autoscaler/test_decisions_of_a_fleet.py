# SPDX-License-Identifier: Apache-2.0
"""A fleet's decision log, in virtual time: what is in it after a Job's life, and that it can be decided again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfp_volcano.elastic.autoscaler.decisions.decision_log import LOG_NAME, DecisionLog
from kfp_volcano.elastic.autoscaler.decisions.log_folder import log_lines
from kfp_volcano.elastic.autoscaler.decisions.log_turns import replay
from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.elastic.autoscaler.policy_file import PolicyFile
from kfp_volcano.schemas.names import HOLD
from kfp_volcano.schemas.records import Hold
from kfp_volcano.volcano.launcher.why import why_recorded

POLICY = """\
apiVersion: kfp-volcano/v1
kind: Policy
metadata: {name: compare}
spec:
  queues: [research]
  guards: {cooldown: 30s}
  %s
"""
POLICIES = {
    "threshold": "threshold: {up: {idleShare: 0.25}}",
    "adaptive": "policy: adaptive",
    "goodput": "policy: goodput",
    "hpa": "policy: hpa",
    "arms": "arms: [{name: a}, {name: b, policy: goodput}]",
}


@pytest.fixture(name="log")
def _log(tmp_path: Path, cluster: Any, request: pytest.FixtureRequest) -> Iterator[DecisionLog]:
    """The log of a fleet with the Policy that a test names."""
    path = tmp_path / "policies.yaml"
    path.write_text(POLICY % POLICIES[getattr(request, "param", "threshold")])
    log = DecisionLog(
        tmp_path / "log", policies=PolicyFile(path, own={}).spec_of, by="sidecar", clock=lambda: cluster.now
    )
    yield log
    log.close()


def fleet(cluster: Any, log: DecisionLog, path: Path, **more: Any) -> Fleet:
    """A fleet that leads one queue and writes a log."""
    numbers = itertools.count(1)
    return Fleet(
        cluster,
        namespace="ml",
        queues=lambda _: ["research"],
        policies=PolicyFile(path / "policies.yaml", own={}).policy_of,
        identity="sidecar",
        recorders=[log],
        view=cluster.view(),
        clock=lambda: cluster.now,
        new_id=lambda: f"r{next(numbers)}",
        **more,
    )


def live(cluster: Any, scaler: Fleet, seconds: float) -> None:
    """Let time pass, and the autoscaler with it."""
    end = cluster.now + seconds
    while cluster.now < end:
        cluster.wait(0, min(scaler.turn(), end) - cluster.now)


@pytest.mark.parametrize("log", POLICIES, indirect=True)
def test_a_life_of_a_job_is_decided_again_to_the_same(cluster: Any, log: DecisionLog, tmp_path: Path) -> None:
    """Whichever policy decides: growth, a gang that comes, a person's hold, another Job, and time that passes."""
    scaler = fleet(cluster, log, tmp_path)
    cluster.submit()
    live(cluster, scaler, 200)
    cluster.submit_gang(pods=4)
    live(cluster, scaler, 100)
    cluster.submit("second", low=1, high=4)
    live(cluster, scaler, 100)
    cluster.annotate(HOLD, Hold(until=cluster.now + 90, by="ada", override=2))
    live(cluster, scaler, 300)
    found = replay(tmp_path / "log", own={})
    assert found.differences == []
    assert found.turns > 3


def test_what_happened_is_explained_from_the_log_alone(cluster: Any, log: DecisionLog, tmp_path: Path) -> None:
    """Each change with its reason and its end, and how the Job itself ended."""
    cluster.submit()
    gang_at, ends_at = cluster.now + 200, cluster.now + 400
    waited = cluster.wait

    def wait(version: int, timeout_s: float) -> int:
        if cluster.now >= gang_at and not any(job["metadata"]["name"] == "big" for job in cluster.objects("Job")):
            cluster.submit_gang(pods=4)
        if cluster.now >= ends_at:
            with cluster.store.transaction() as (world, _):
                job = world.objects["Job"]["ml", "digits"]
                world.update({**job, "status": {**job["status"], "state": {"phase": "Completed"}}})
        return int(waited(version, min(timeout_s, 5.0)))

    cluster.wait = wait
    fleet(cluster, log, tmp_path, only_for="ml/digits").run()
    why = why_recorded(tmp_path / "log", "digits")
    assert [(change.from_workers, change.to_workers, change.reason) for change in why.changes] == [
        (2, 8, "QueueIdle"),
        (8, 4, "GangPending"),
    ]
    assert all(change.phase is not None and change.phase.value == "Done" for change in why.changes)
    assert all(change.by == "sidecar" and change.policy == "threshold" for change in why.changes)
    assert why.state == "Succeeded"
    (ended,) = log_lines(tmp_path / "log", LOG_NAME, naming=('"kind":"ended"',))
    assert ended["resizes"] == 2
    assert ended["gpu_s"] == pytest.approx(2 * 60 + 8 * 140 + 4 * 200, rel=0.25)
