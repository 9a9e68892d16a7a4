# SPDX-License-Identifier: Apache-2.0
"""Progress onto the Job: seldom, the newest, with its history, and through outages."""

from __future__ import annotations

import logging
import threading

import pytest

from kfp_volcano.elastic.autoscaler.publishing import ProgressPublisher, with_history
from kfp_volcano.elastic.coordination.history import CHANGES_KEPT
from kfp_volcano.errors import UnavailableError
from kfp_volcano.schemas.names import PROGRESS
from kfp_volcano.schemas.records import MembershipChange, Progress, dump, parse
from kfp_volcano.volcano.cluster.annotations import annotation

PATIENCE_S = 20.0


def progress(step, *changes):
    return Progress(
        step=step,
        total_steps=9,
        samples=step,
        epoch=0,
        throughput=1.0,
        workers=2,
        batch=1,
        lr=0.1,
        at=1.0,
        changes=changes,
    )


def change(step):
    return MembershipChange(step=step, from_workers=2, to_workers=3, at=float(step), pause_s=0.1)


class Watched:
    """A cluster whose writes of progress can be waited for."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.written = threading.Semaphore(0)
        self.outages = 0

    def get(self, *key):
        return self._cluster.get(*key)

    def patch(self, *arguments):
        if self.outages:
            self.outages -= 1
            raise UnavailableError("away")
        patched = self._cluster.patch(*arguments)
        self.written.release()
        return patched


@pytest.fixture
def watched(cluster):
    """The virtual cluster with a Job that trains nothing by itself."""
    cluster.trains = False
    cluster.submit()
    return Watched(cluster)


def written(cluster):
    return parse(Progress, annotation(cluster.job(), PROGRESS))


def test_the_newest_progress_is_written_and_what_was_between_left_out(cluster, watched):
    """The first at once; of those that come within the time between two writes the last, when it closes."""
    publisher = ProgressPublisher(lambda: watched, "ml", "digits", every_s=3600)
    publisher.offer(progress(1))
    assert watched.written.acquire(timeout=PATIENCE_S)
    for step in (2, 3, 4):
        publisher.offer(progress(step))
    assert written(cluster).step == 1
    publisher.close()
    assert written(cluster).step == 4


def test_an_outage_is_waited_out(cluster, watched):
    """What could not be written is tried again, though nothing new comes."""
    watched.outages = 2
    publisher = ProgressPublisher(lambda: watched, "ml", "digits", every_s=0.01)
    publisher.offer(progress(1))
    assert watched.written.acquire(timeout=PATIENCE_S)
    assert written(cluster).step == 1
    publisher.close()


def test_an_outage_is_told_once(cluster, watched, caplog):
    """However often it is tried meanwhile, and that it is over; the next one again."""
    caplog.set_level(logging.INFO, logger="kfp_volcano.elastic.autoscaler.publishing")
    publisher = ProgressPublisher(lambda: watched, "ml", "digits", every_s=0.01)
    for step in (1, 2):
        watched.outages = 5
        publisher.offer(progress(step))
        assert watched.written.acquire(timeout=PATIENCE_S)
    publisher.close()
    assert [record.getMessage() for record in caplog.records] == [
        "progress is not written yet: away",
        "progress is written",
    ] * 2


def test_a_job_that_is_gone_ends_nothing(watched):
    """The publisher goes on, should the Job come back."""
    publisher = ProgressPublisher(lambda: watched, "ml", "gone", every_s=0.01)
    publisher.offer(progress(1))
    publisher.close()
    assert not watched.written.acquire(blocking=False)


def test_history_survives_whoever_forgot_it():
    """Changes that the annotation tells of already are kept, in order, each once, the last twenty."""
    before = dump(progress(3, change(1), change(2)))
    merged = with_history(progress(9, change(2), change(5)), before)
    assert merged.step == 9
    assert [each.step for each in merged.changes] == [1, 2, 5]
    many = with_history(progress(99, *(change(step) for step in range(10, 30))), before)
    assert [each.step for each in many.changes] == list(range(30 - CHANGES_KEPT, 30))


@pytest.mark.parametrize("garbage", [None, "", "{", "[]", '{"changes": 1}'])
def test_history_that_cannot_be_read_is_none(garbage):
    """Garbage in the annotation is overwritten."""
    assert with_history(progress(9, change(2)), garbage) == progress(9, change(2))
