# SPDX-License-Identifier: Apache-2.0
"""Leases: taken, kept, given back, handed on, run out."""

from __future__ import annotations

import pytest

from kfp_volcano.elastic.autoscaler.lease import HANDOVER_S, TERM_S, JobLease, Lease


@pytest.fixture
def lease(cluster):
    """Makes one side's view of the Lease `it`."""

    def make(holder, kind=Lease, **more):
        return kind(cluster, "ml", "it", holder=holder, clock=lambda: cluster.now, **more)

    return make


@pytest.fixture
def job(cluster):
    """The Job `it`."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"queue": "research", "tasks": [{"name": "core", "replicas": 1, "template": template}]}
    metadata = {"name": "it", "namespace": "ml"}
    return cluster.create(
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}
    )


def test_the_first_to_ask_holds_it(lease):
    """One holder at a time."""
    ours, theirs = lease("a"), lease("b")
    assert ours.hold()
    assert not theirs.hold()
    assert theirs.term.holder == "a"


def test_it_runs_out_unless_it_is_renewed(cluster, lease):
    """A holder that is gone keeps it for a term, not longer."""
    ours, theirs = lease("a"), lease("b")
    ours.hold()
    cluster.now += TERM_S - 1
    assert ours.hold()
    cluster.now += TERM_S - 1
    assert not theirs.hold()
    cluster.now += 1
    assert theirs.hold()
    assert not ours.held


def test_renewing_asks_only_when_due(cluster, lease):
    """The cluster is not asked at every look."""
    ours = lease("a")
    ours.renew_if_due()
    cluster.writes = 0
    cluster.now += TERM_S / 3 - 1
    assert ours.renew_if_due()
    assert cluster.writes == 0
    cluster.now += 1
    assert ours.renew_if_due()
    assert cluster.writes == 1


def test_whoever_waits_looks_again_at_its_end(cluster, lease):
    """No later than when it may be had."""
    lease("a").hold()
    theirs = lease("b")
    assert not theirs.renew_if_due()
    assert theirs.due_at <= cluster.now + TERM_S
    cluster.now = theirs.term.ends_at
    assert theirs.due_at <= cluster.now
    assert theirs.renew_if_due()


def test_a_released_lease_is_free_at_once(lease):
    """Giving back saves the next one the wait."""
    ours, theirs = lease("a"), lease("b")
    ours.hold()
    ours.release()
    assert not ours.held
    assert theirs.hold()


def test_what_is_not_ours_is_not_released(lease):
    """Neither release nor hand-over touches another's."""
    ours, theirs = lease("a"), lease("b")
    ours.hold()
    theirs.hold()
    theirs.release()
    theirs.hand_over("c")
    assert ours.look().holder == "a"


def test_a_write_in_between_is_noticed(cluster, lease):
    """Of two who find it free at the same time one gets it."""
    ours, theirs = lease("a"), lease("b")
    ours.hold()
    ours.release()
    theirs.look()
    assert ours.hold()
    stale = theirs.term
    assert not stale.holder
    assert not theirs.hold()


def test_a_new_process_of_the_same_name_goes_on(lease):
    """Killed and started again, a holder need not wait for its own term to end."""
    lease("a").hold()
    assert lease("a").hold()


def test_the_times_are_kubernetes_micro_times(cluster, lease):
    """The API server takes no others."""
    lease("a").hold()
    spec = cluster.get("Lease", "it", "ml")["spec"]
    assert spec["renewTime"] == "2026-09-21T14:13:20.000000Z"
    assert spec["leaseDurationSeconds"] == TERM_S
    assert spec["leaseTransitions"] == 0


def test_a_run_inherits_what_its_step_left(cluster, lease, job):
    """Any part of the run takes it up at once; others wait for five minutes."""
    train, other = lease("train-1:abc", JobLease), lease("train-1:xyz", JobLease)
    train.hold()
    train.hand_over("run:abc")
    cluster.now += HANDOVER_S - 1
    assert not other.hold()
    assert lease("train-2:abc", JobLease).hold()


def test_a_resize_step_leaves_it_to_its_run(cluster, lease, job):
    """What the run holds itself lasts until its next step is there."""
    resize, train = lease("run:abc", JobLease), lease("train-2:abc", JobLease)
    resize.hold()
    cluster.now += HANDOVER_S - 1
    assert train.hold()
    assert not resize.hold()


def test_a_jobs_lease_goes_with_the_job(cluster, lease, job):
    """It is owned by the Job, so that nothing is left behind; without a Job there is nothing to hold."""
    ours = lease("train-1:abc", JobLease)
    ours.hold()
    assert cluster.get("Lease", "it", "ml")["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    cluster.store.delete("Job", "it", "ml")
    assert cluster.list("Lease", "ml")[0] == []
    assert not lease("train-2:abc", JobLease).hold()
