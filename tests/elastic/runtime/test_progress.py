# SPDX-License-Identifier: Apache-2.0
"""What training tells of itself: its history, and how the coordinator puts it together."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from kfp_volcano.elastic.runtime.coordinator import Coordinator
from kfp_volcano.elastic.runtime.progress import History
from kfp_volcano.schemas.records import MembershipChange, Progress, dump

PROGRESS = Progress(step=9, total_steps=99, samples=90, epoch=0, throughput=10.0, workers=2, batch=10, lr=0.1, at=1.0)


def test_a_change_is_told_with_its_pause_and_what_it_lost() -> None:
    """The pause is the gap around the change less the median step; a newcomer tells it as the others do."""
    history = History()
    for step in range(10):
        history.commit(step=step + 1, samples=10 * (step + 1), workers=2, at=float(step))
    history.discard()
    newcomer = History()
    newcomer.load_state_dict(json.loads(json.dumps(history.state_dict())))
    newcomer.discard()
    for who in (history, newcomer):
        who.commit(step=11, samples=110, workers=1, at=12.5)
        change = MembershipChange(step=11, from_workers=2, to_workers=1, at=12.5, pause_s=2.5, steps_lost=1)
        assert who.changes == (change,)
    assert History().throughput == 0.0
    assert newcomer.throughput == pytest.approx(100 / 12.5)


def test_a_pause_is_measured_by_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer whose clock is an hour ahead, or behind, tells the pause that the others saw."""
    for skew in (-3600.0, 3600.0):
        history = History()
        for step in range(10):
            history.commit(step=step + 1, samples=10 * (step + 1), workers=1, at=1000.0 + step)
        monkeypatch.setattr("time.time", lambda: 1010.0)
        told = history.state_dict()
        newcomer = History()
        newcomer.load_state_dict(told)
        newcomer.shift(1010.0 + skew - told["told_at"])
        newcomer.commit(step=11, samples=110, workers=2, at=1011.5 + skew)
        assert newcomer.changes[0].pause_s == pytest.approx(1.5)


def post(url: str, body: bytes) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=10) as answer:
        return int(answer.status)


def test_the_coordinator_remembers_changes_that_the_first_worker_no_longer_knows() -> None:
    """Reports of a first worker that began anew do not erase what was told before; rubbish is refused."""
    received: list[Progress] = []
    coordinator = Coordinator("127.63.0.1", received.append)
    try:
        url = "http://127.63.0.1:29511/progress"
        changes = [
            MembershipChange(step=n, from_workers=n, to_workers=n + 1, at=float(n), pause_s=0.1) for n in range(25)
        ]
        assert post(url, dump(replace(PROGRESS, changes=tuple(changes[:20]))).encode()) == 204
        assert post(url, dump(replace(PROGRESS, changes=tuple(changes[20:]))).encode()) == 204
        assert received[0].changes == tuple(changes[:20])
        assert received[1].changes == tuple(changes[5:])
        for wrong, body in ((url, b"{}"), (url, b"rubbish"), (url.replace("progress", "else"), b"{}")):
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(wrong, body)
            assert refused.value.code == 400
            refused.value.close()
        with pytest.raises(OSError, match="in use"):
            Coordinator("127.63.0.1", received.append)
    finally:
        coordinator.stop()
