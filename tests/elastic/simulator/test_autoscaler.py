# SPDX-License-Identifier: Apache-2.0
"""Laws of the autoscaler's turns under the virtual clock."""

from __future__ import annotations

import random

import pytest

from kfp_volcano.elastic.simulator.autoscaler import Autoscaler
from kfp_volcano.elastic.simulator.scenario import Job, Node, Scenario
from kfp_volcano.elastic.simulator.simulate import simulate
from kfp_volcano.elastic.simulator.traced import Traced


def _scenario(seed: int) -> Scenario:
    draw, at, jobs = random.Random(seed), 0.0, []
    for number in range(25):
        at += draw.expovariate(1 / draw.choice([30, 300]))
        gpus = draw.choice([1, 2, 4])
        jobs.append(
            Job(
                name=f"job-{number:02}",
                submitted_at=at,
                work=Traced(duration_s=draw.uniform(100, 3000), gpus=gpus),
                workers=gpus,
                min_workers=max(1, gpus // 2),
                max_workers=draw.choice([1, 3]) * gpus,
            )
        )
    return Scenario(name="turns", nodes=tuple(Node(name=f"n{number}", gpus=4) for number in range(4)), jobs=tuple(jobs))


@pytest.mark.parametrize("policy", ["threshold", "adaptive", "greedy"])
@pytest.mark.parametrize("seed", range(3))
def test_turns_that_rest_would_have_resized_nothing(seed: int, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full look at every turn the same is decided at the same times."""
    resting = simulate(_scenario(seed), policy)
    with monkeypatch.context() as patched:
        patched.setattr(Autoscaler, "_rests", lambda *_: False)
        looking = simulate(_scenario(seed), policy)
    assert resting.decided
    assert [(each.at, each.job, each.to_workers, each.reason) for each in resting.decided] == [
        (pytest.approx(each.at), each.job, each.to_workers, each.reason) for each in looking.decided
    ]
    assert resting.events <= looking.events
