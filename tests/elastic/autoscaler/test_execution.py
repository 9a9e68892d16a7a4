# SPDX-License-Identifier: Apache-2.0
"""Resizes carried out, in virtual time: to the end, and to the same end after a death at any line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfp_volcano.elastic.autoscaler.contracts import open_request
from kfp_volcano.elastic.autoscaler.execution import execute
from kfp_volcano.elastic.autoscaler.lease import HANDOVER_S, TERM_S, JobLease
from kfp_volcano.elastic.autoscaler.resizing import MOST_OUTCOMES, READY_S, REPORT_S, SHRUNK_S, next_step, request_patch
from kfp_volcano.elastic.policies.guards import PLACE_S
from kfp_volcano.errors import InvalidError, ResizeError
from kfp_volcano.schemas.names import PROGRESS, REQUEST, RESIZE
from kfp_volcano.schemas.records import MembershipChange, Phase, Progress, ResizeOutcome, ResizeRequest


def request(cluster, to_workers, *, from_workers=None, name="r1", expires_s=600.0, **more):
    return ResizeRequest(
        id=name,
        from_workers=cluster.size() if from_workers is None else from_workers,
        to_workers=to_workers,
        reason="QueueIdle",
        explanation="because",
        policy="threshold",
        by="test",
        at=cluster.now,
        expires=cluster.now + expires_s,
        **more,
    )


def run(cluster, holder="cli:me", **more):
    return execute(cluster, "ml", "digits", holder=holder, clock=lambda: cluster.now, informer=cluster, **more)


def lease(cluster, holder):
    return JobLease(cluster, "ml", "digits", holder=holder, clock=lambda: cluster.now)


@pytest.mark.parametrize(("initial", "size"), [(2, 8), (8, 2), (4, 5)])
def test_a_resize_is_done_when_training_shows_it(cluster, initial, size):
    """Grown or shrunk, with all its times, and the Lease given back."""
    cluster.submit(initial=initial)
    cluster.annotate(REQUEST, request(cluster, size))
    outcome = run(cluster)
    assert (outcome.phase, outcome.from_workers, outcome.to_workers) == (Phase.DONE, initial, size)
    assert cluster.running("digits") == size + 1
    assert cluster.outcomes() == [outcome]
    times = (outcome.requested_at, outcome.accepted_at, outcome.patched_at, outcome.ready_at, outcome.done_at)
    assert list(times) == sorted(times)
    assert outcome.executed_by == "cli:me"
    assert not lease(cluster, "other").look().holder


def test_executing_again_changes_nothing(cluster):
    """A step that was killed after the last line, and is tried again, gets the same outcome."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, 4))
    outcome = run(cluster)
    version = cluster.job()["metadata"]["resourceVersion"]
    assert run(cluster) == outcome
    assert cluster.job()["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(
    ("write", "urgent"), [*((write, False) for write in range(6)), *((write, True) for write in range(4))]
)
def test_a_death_at_any_write_changes_nothing_about_the_end(cluster, write, lost, urgent):
    """Whoever comes next goes on, before the write or after it, and the Job ends as it would have."""
    cluster.submit(initial=8)
    asked = request(cluster, 4, urgent=urgent)
    cluster.store.patch("Job", "digits", "ml", request_patch(cluster.job(), asked, by="autoscaler", now=cluster.now))
    cluster.fail_at(write, lost=lost)
    with pytest.raises(BaseException, match="killed"):
        run(cluster, holder="resize:one")
    outcome = run(cluster, holder="resize:two")
    assert (outcome.phase, outcome.from_workers, outcome.to_workers) == (Phase.DONE, 8, 4)
    assert [each.id for each in cluster.outcomes()] == ["r1"]
    assert cluster.running("digits") == 5
    assert cluster.now - outcome.requested_at <= TERM_S


def test_an_urgent_request_is_carried_out_by_its_own_patch(cluster):
    """There is no moment at which it is asked for and not done; the step that comes verifies and records."""
    cluster.submit(initial=8)
    asked = request(cluster, 4, urgent=True)
    cluster.store.patch("Job", "digits", "ml", request_patch(cluster.job(), asked, by="autoscaler", now=cluster.now))
    assert cluster.size() == 4
    assert open_request(cluster.job(), cluster.now) == asked
    outcome = run(cluster, holder="run:abc")
    assert (outcome.phase, outcome.executed_by) == (Phase.DONE, "autoscaler")


def test_only_the_holder_of_the_lease_acts(cluster):
    """Another watches until the Lease runs out, then takes over."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, 4))
    lease(cluster, "train-1:abc").hold()
    began = cluster.now
    assert run(cluster, holder="cli:me").phase is Phase.DONE
    assert cluster.now >= began + TERM_S


def test_a_resize_step_takes_up_what_the_train_step_left(cluster):
    """At once, and the Lease stays with the run for the next train step."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, 4))
    train = lease(cluster, "train-1:abc")
    train.hold()
    train.hand_over("run:abc")
    began = cluster.now
    run(cluster, holder="run:abc")
    assert cluster.now == began
    term = lease(cluster, "other").look()
    assert term.holder == "run:abc"
    assert term.ends_at >= cluster.now + HANDOVER_S - 1
    assert lease(cluster, "train-2:abc").hold()


def test_a_follower_keeps_its_lease(cluster):
    """The last train step executes and goes on following."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, 4))
    follower = lease(cluster, "train-4:abc")
    follower.hold()
    run(cluster, holder="train-4:abc")
    assert lease(cluster, "other").look().holder == "train-4:abc"


@pytest.mark.parametrize(
    ("size", "from_workers", "why"),
    [(9, None, "none of the sizes"), (1, None, "none of the sizes"), (4, 3, "has 2"), (2, None, "already")],
)
def test_what_cannot_be_is_refused(cluster, size, from_workers, why):
    """With the reason, and the Job as it was."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, size, from_workers=from_workers))
    outcome = run(cluster)
    assert outcome.phase is Phase.REFUSED
    assert why in outcome.message
    assert cluster.size() == 2


def test_a_request_nobody_took_up_expires(cluster):
    """Late is never: the queue is another by then."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, 4))
    cluster.now += 600
    assert run(cluster).phase is Phase.EXPIRED
    assert cluster.size() == 2


def test_without_a_request_there_is_nothing_to_execute(cluster):
    """Neither for a Job that is not there."""
    cluster.submit()
    with pytest.raises(ResizeError, match="nobody has asked"):
        run(cluster)
    with pytest.raises(ResizeError, match="is gone"):
        execute(cluster, "ml", "none", holder="x", clock=lambda: cluster.now, informer=cluster)


def test_growth_that_finds_no_room_settles_at_what_it_got(cluster):
    """A gang came between decision and patch: no hole is left to compete with others."""
    cluster.submit(sizes=[2, 4, 6, 8])
    cluster.annotate(REQUEST, request(cluster, 8))
    cluster.submit_gang(pods=3)
    outcome = run(cluster)
    assert (outcome.phase, outcome.to_workers, cluster.size()) == (Phase.DONE, 4, 4)
    assert "settled at 4, asked for 8" in outcome.message
    assert outcome.settled_at - outcome.patched_at >= PLACE_S


def test_growth_that_gets_nothing_is_rolled_back(cluster):
    """The Job runs on at the size it had."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, 8))
    cluster.submit_gang(pods=6)
    outcome = run(cluster)
    assert (outcome.phase, outcome.to_workers, cluster.size()) == (Phase.ROLLED_BACK, 2, 2)
    assert cluster.running("digits") == 3


def test_a_hole_that_a_shrink_leaves_is_closed_soon(cluster):
    """Where reclaim took workers from the middle, the Job settles at as many as run."""
    cluster.submit(initial=8)
    asked = request(cluster, 6, urgent=True)
    cluster.store.patch("Job", "digits", "ml", request_patch(cluster.job(), asked, by="x", now=cluster.now))
    cluster.settle()
    pods = cluster.objects("Pod")
    for pod in pods:
        if pod["metadata"]["name"] in {"digits-elastic-0", "digits-elastic-1"}:
            del pod["spec"]["nodeName"]
            pod["status"]["phase"] = "Pending"
    waits = next_step(cluster.job(), pods, by="x", now=cluster.now)
    assert (waits.patch, waits.look_at) == (None, cluster.now + SHRUNK_S)
    settles = next_step(cluster.job(), pods, by="x", now=cluster.now + SHRUNK_S)
    assert settles.outcome.to_workers == 4
    cluster.store.patch("Job", "digits", "ml", settles.patch)
    assert cluster.size() == 4


def test_workers_that_never_run_are_given_up(cluster):
    """They have a node, but no image: after a while the Job goes back."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, 4))
    cluster.broken_nodes = True
    outcome = run(cluster)
    assert (outcome.phase, cluster.size()) == (Phase.ROLLED_BACK, 2)
    assert outcome.done_at - outcome.patched_at >= READY_S


def test_training_that_does_not_show_it_is_waited_for_so_long(cluster):
    """Then the resize is done as far as the cluster can tell, with a note."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, 4))
    cluster.trains = False
    outcome = run(cluster)
    assert outcome.phase is Phase.DONE
    assert outcome.done_at - outcome.ready_at >= REPORT_S
    assert "has not shown" in outcome.message


def test_what_it_cost_comes_from_the_changes_it_caused(cluster):
    """The longest pause and all lost steps since the patch; what was before does not count."""
    cluster.submit()
    cluster.trains = False
    cluster.annotate(REQUEST, request(cluster, 4))
    changes = (
        MembershipChange(step=1, from_workers=1, to_workers=2, at=cluster.now - 1, pause_s=9.0, steps_lost=9),
        MembershipChange(step=5, from_workers=2, to_workers=3, at=cluster.now + 1, pause_s=0.1, steps_lost=1),
        MembershipChange(step=6, from_workers=3, to_workers=4, at=cluster.now + 2, pause_s=0.3),
    )
    progress = Progress(
        step=6,
        total_steps=9,
        samples=1,
        epoch=0,
        throughput=1,
        workers=4,
        batch=1,
        lr=0.1,
        at=cluster.now + 2,
        changes=changes,
    )
    cluster.annotate(PROGRESS, progress)
    outcome = run(cluster)
    assert (outcome.pause_s, outcome.steps_lost) == (0.3, 1)


def test_a_job_that_ends_meanwhile_ends_the_resize(cluster):
    """Nothing is waited for that cannot come."""
    cluster.submit()
    cluster.broken_nodes = True
    cluster.annotate(REQUEST, request(cluster, 4))
    waited = cluster.wait

    def wait(version, timeout_s):
        if cluster.outcomes() and cluster.outcomes()[-1].phase is Phase.PATCHED:
            status = {**cluster.job()["status"], "state": {"phase": "Completed"}}
            cluster.store.patch("Job", "digits", "ml", [{"op": "replace", "path": "/status", "value": status}])
        return waited(version, timeout_s)

    cluster.wait = wait
    assert run(cluster).phase is Phase.EXPIRED


def test_replicas_that_another_changed_end_the_resize(cluster):
    """Whoever patches the Job by hand has the last word."""
    cluster.submit()
    cluster.broken_nodes = True
    asked = request(cluster, 8, urgent=True)
    cluster.store.patch("Job", "digits", "ml", request_patch(cluster.job(), asked, by="x", now=cluster.now))
    index = next(i for i, task in enumerate(cluster.job()["spec"]["tasks"]) if task["name"] == "elastic")
    path = f"/spec/tasks/{index}/replicas"
    cluster.store.patch("Job", "digits", "ml", [{"op": "replace", "path": path, "value": 1}])
    outcome = run(cluster)
    assert (outcome.phase, outcome.to_workers) == (Phase.ROLLED_BACK, 3)


def test_what_admission_refuses_is_a_refusal(cluster):
    """Some webhook of the cluster has its say, and the request its answer."""
    cluster.submit()
    cluster.annotate(REQUEST, request(cluster, 4))
    patch = cluster.patch

    def refuse(kind, name, namespace, operations):
        if any(operation["path"].startswith("/spec/tasks") for operation in operations):
            raise InvalidError("no more replicas today")
        return patch(kind, name, namespace, operations)

    cluster.patch = refuse
    outcome = run(cluster)
    assert (outcome.phase, outcome.message) == (Phase.REFUSED, "no more replicas today")


def test_the_record_is_bounded(cluster):
    """The last fifty outcomes are kept."""
    cluster.submit()
    old = ResizeOutcome(
        id="old",
        phase=Phase.DONE,
        from_workers=1,
        to_workers=2,
        reason="",
        explanation="",
        requested_at=0.0,
        executed_by="",
    )
    cluster.annotate(RESIZE, [replace(old, id=f"old-{number}") for number in range(MOST_OUTCOMES)])
    cluster.annotate(REQUEST, request(cluster, 4))
    run(cluster)
    assert [outcome.id for outcome in cluster.outcomes()][-2:] == ["old-49", "r1"]
    assert len(cluster.outcomes()) == MOST_OUTCOMES
