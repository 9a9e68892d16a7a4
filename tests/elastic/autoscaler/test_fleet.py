# SPDX-License-Identifier: Apache-2.0
"""A fleet that leads one queue, in virtual time."""

from __future__ import annotations

import itertools
import json

import pytest

from kfp_volcano.elastic.autoscaler.execution import execute
from kfp_volcano.elastic.autoscaler.executor import FOLLOWER_S, REQUEST_S
from kfp_volcano.elastic.autoscaler.fleet import STALE_S, Fleet
from kfp_volcano.elastic.autoscaler.leading import lease_name
from kfp_volcano.elastic.autoscaler.lease import HANDOVER_S, TERM_S, JobLease, Lease
from kfp_volcano.elastic.autoscaler.telling.queue_log import QueueLog
from kfp_volcano.elastic.policies.guards import PLACE_S, Guarded
from kfp_volcano.elastic.policies.settings import GuardSettings
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.errors import ForbiddenError, InvalidError, UnavailableError
from kfp_volcano.schemas.names import HOLD, REQUEST, SYSTEM_NAMESPACE
from kfp_volcano.schemas.records import Hold, Phase, ResizeRequest
from kfp_volcano.volcano.cluster.annotations import annotation


def autoscaler(cluster, identity="sidecar:ml/digits", **more):
    numbers = itertools.count(1)
    return Fleet(
        cluster,
        namespace="ml",
        queues=lambda _: ["research"],
        policies=lambda _: Guarded(Threshold()),
        identity=identity,
        view=cluster.view(),
        clock=lambda: cluster.now,
        new_id=lambda: f"r{next(numbers)}-{cluster.now:.0f}",
        **more,
    )


def test_growth_is_asked_of_whoever_follows_the_job(cluster):
    """The request is there at once, the Job as it was: the resize is a step of the DAG."""
    cluster.submit()
    cluster.follow()
    autoscaler(cluster).turn()
    asked = cluster.request()
    assert (asked.from_workers, asked.to_workers, asked.reason, asked.urgent) == (2, 8, "QueueIdle", False)
    assert (asked.by, asked.at, asked.expires) == ("sidecar:ml/digits", cluster.now, cluster.now + REQUEST_S)
    assert (cluster.size(), cluster.outcomes()) == (2, [])


def test_the_follower_carries_it_out(cluster):
    """And what the autoscaler asks for next waits for its answer."""
    cluster.submit()
    cluster.follow()
    scaler = autoscaler(cluster)
    scaler.turn()
    first = cluster.request()
    scaler.turn()
    assert cluster.request() == first
    execute(cluster, "ml", "digits", holder="train-1:abc", clock=lambda: cluster.now, informer=cluster)
    scaler.turn()
    assert cluster.request() == first
    assert (cluster.size(), cluster.outcomes()[-1].phase) == (8, Phase.DONE)


def test_without_a_follower_it_acts_itself(cluster):
    """A Lease that has run out, was given back, or never was there: nothing depends on a follower."""
    cluster.submit()
    cluster.follow().release()
    scaler = autoscaler(cluster)
    cluster.live(scaler, 1)
    assert (cluster.size(), cluster.outcomes()[-1].phase) == (8, Phase.DONE)
    assert not JobLease(cluster, "ml", "digits", holder="x", clock=lambda: cluster.now).look().holder


@pytest.mark.parametrize(("left", "after"), [(None, TERM_S), ("run:abc", HANDOVER_S)])
def test_a_follower_that_is_gone_is_waited_for_as_long_as_its_lease(cluster, left, after):
    """A term after a crash, five minutes between two steps of a run."""
    cluster.submit()
    lease = cluster.follow()
    if left:
        lease.hand_over(left)
    scaler = autoscaler(cluster)
    cluster.live(scaler, after - 1)
    assert cluster.size() == 2
    cluster.live(scaler, 2)
    assert cluster.size() == 8


def test_a_job_that_nobody_has_followed_yet_waits_for_its_first_follower(cluster):
    """Its train step is on its way; but not for ever."""
    cluster.submit()
    scaler = autoscaler(cluster)
    cluster.live(scaler, FOLLOWER_S - 1)
    assert cluster.size() == 2
    cluster.live(scaler, 2)
    assert cluster.size() == 8


def test_a_job_that_came_as_a_manifest_waits_for_nobody(cluster):
    """What was rendered and applied has no run whose step could come."""
    cluster.submit(step="render")
    cluster.live(autoscaler(cluster), 1)
    assert cluster.size() == 8


def test_a_job_that_nobody_has_followed_for_long_is_waited_for_no_more(cluster):
    """A Job that was left to itself is resized as soon as that is asked for."""
    cluster.submit()
    cluster.now += FOLLOWER_S
    cluster.live(autoscaler(cluster), 1)
    assert cluster.size() == 8


def test_a_job_that_stands_in_its_own_way_gives_up_its_surplus(cluster):
    """Without a priority class, Volcano would place its surplus before its gang, and so neither, for ever."""
    cluster.submit_gang(pods=5)
    cluster.submit(initial=8, low=3)
    assert cluster.running("digits") == 0
    scaler = autoscaler(cluster)
    cluster.live(scaler, PLACE_S - 1)
    assert cluster.size() == 8
    cluster.live(scaler, 10)
    assert (cluster.size(), cluster.running("digits")) == (3, 1 + 3)
    cluster.live(scaler, FOLLOWER_S)
    assert [each.phase for each in cluster.outcomes()] == [Phase.DONE]


def test_a_waiting_gang_is_served_at_once(cluster):
    """Under the follower's Lease, in cooldown, with the follower to verify and record it."""
    cluster.submit(initial=8)
    cluster.follow()
    scaler = autoscaler(cluster)
    scaler.turn()
    cluster.submit_gang(pods=4)
    scaler.turn()
    assert cluster.size() == 4
    assert cluster.outcomes()[-1].phase is Phase.PATCHED
    cluster.settle()
    assert cluster.running("big") == 4
    outcome = execute(cluster, "ml", "digits", holder="train-1:abc", clock=lambda: cluster.now, informer=cluster)
    assert (outcome.phase, outcome.reason) == (Phase.DONE, "GangPending")


def test_a_gang_is_given_for_once(cluster):
    """What a smaller Job lets go is the gang's, also until Volcano's controller has deleted the pods."""
    cluster.submit("one", initial=4, low=1)
    cluster.submit("two", initial=4, low=1)
    cluster.submit_gang(pods=2)
    scaler = autoscaler(cluster)
    for _ in range(3):
        scaler.turn()
    assert (cluster.size("one"), cluster.size("two"), cluster.running("one")) == (2, 4, 5)
    cluster.settle()
    scaler.turn()
    assert (cluster.size("one"), cluster.size("two"), cluster.running("big")) == (2, 4, 2)


def test_the_whole_story(cluster):
    """An idle queue is grown into, a gang gets its GPUs, and when it has ended the Job grows again."""
    cluster.submit()
    cluster.follow().release()
    scaler = autoscaler(cluster)
    cluster.live(scaler, 100)
    assert cluster.size() == 8
    cluster.submit_gang(pods=4)
    cluster.live(scaler, 10)
    assert (cluster.size(), cluster.running("big")) == (4, 4)
    with cluster.store.transaction() as (world, now):
        world.delete("Job", ("vision", "big"), now)
    cluster.live(scaler, 50)
    assert cluster.size() == 4
    cluster.live(scaler, 20)
    assert cluster.size() == 8
    story = [(each.from_workers, each.to_workers, each.phase) for each in cluster.outcomes()]
    assert story == [(2, 8, Phase.DONE), (8, 4, Phase.DONE), (4, 8, Phase.DONE)]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("write", range(26))  # all of them
def test_a_death_at_any_write_loses_nothing(cluster, write, lost):
    """Killed before or after any of its writes and started again, it goes on from what the cluster holds."""
    cluster.submit()
    cluster.follow().release()
    cluster.fail_at(write, lost=lost)
    deaths = 0
    for _ in range(2):
        try:
            cluster.live(autoscaler(cluster), 70)
            cluster.submit_gang(f"big-{deaths}", pods=4)
            cluster.live(autoscaler(cluster), 70)
            break
        except BaseException as death:  # noqa: BLE001 - the death is the point
            assert type(death).__name__ == "Killed"  # noqa: PT017
            deaths += 1
    assert deaths == 1
    assert cluster.size() == 4
    assert [each.phase for each in cluster.outcomes()] == [Phase.DONE, Phase.DONE]
    assert len({each.id for each in cluster.outcomes()}) == 2


def test_one_leads(cluster):
    """A second autoscaler of the namespace does nothing until the first is gone."""
    cluster.submit()
    cluster.follow()
    first, second = autoscaler(cluster, "sidecar:ml/a"), autoscaler(cluster, "sidecar:ml/b")
    Lease(cluster, "ml", lease_name("research"), holder="sidecar:ml/a", clock=lambda: cluster.now).hold()
    second.turn()
    assert annotation(cluster.job(), REQUEST) is None
    first.turn()
    assert cluster.request().by == "sidecar:ml/a"


def test_a_leader_that_is_gone_is_replaced(cluster):
    """After a term at most."""
    cluster.submit()
    cluster.follow()
    Lease(cluster, "ml", lease_name("research"), holder="dead", clock=lambda: cluster.now).hold()
    scaler = autoscaler(cluster)
    cluster.live(scaler, TERM_S + 1)
    assert cluster.request().by == "sidecar:ml/digits"


def test_a_shared_autoscaler_goes_first(cluster):
    """While it holds its Lease, the one beside the Job stands aside, and gives back what it had."""
    cluster.submit()
    cluster.follow()
    scaler = autoscaler(cluster, shared_namespace=SYSTEM_NAMESPACE)
    shared = Lease(cluster, SYSTEM_NAMESPACE, lease_name("research"), holder="all", clock=lambda: cluster.now)
    shared.hold()
    scaler.turn()
    assert annotation(cluster.job(), REQUEST) is None
    cluster.now += TERM_S
    scaler.turn()
    assert cluster.request().to_workers == 8


def test_who_may_not_look_for_a_shared_autoscaler_has_none(cluster, monkeypatch):
    """Where one is installed everybody may look: so the one beside the Job does its work."""
    cluster.submit()
    cluster.follow()
    get = cluster.get

    def guarded(kind, name, namespace=""):
        if (kind, namespace) == ("Lease", SYSTEM_NAMESPACE):
            raise ForbiddenError("no")
        return get(kind, name, namespace)

    monkeypatch.setattr(cluster, "get", guarded)
    autoscaler(cluster, shared_namespace=SYSTEM_NAMESPACE).turn()
    assert cluster.request().to_workers == 8


def test_an_expired_request_is_answered_and_asked_again(cluster):
    """Whoever holds the Job's Lease: it can only be late."""
    cluster.submit()
    lease, scaler = cluster.follow(), autoscaler(cluster)
    scaler.turn()
    first = cluster.request().id
    for _ in range(70):
        cluster.now += 10
        lease.hold()
        scaler.turn()
    assert (cluster.outcomes()[0].id, cluster.outcomes()[0].phase) == (first, Phase.EXPIRED)
    assert cluster.request().id != first


def test_a_hold_is_respected_and_its_end_awaited(cluster):
    """The loop looks again when it lets go."""
    cluster.submit()
    cluster.follow()
    cluster.annotate(HOLD, Hold(until=cluster.now + 3, by="ada"))
    scaler = autoscaler(cluster)
    assert scaler.turn() == cluster.now + 3
    assert annotation(cluster.job(), REQUEST) is None
    cluster.now += 3
    scaler.turn()
    assert cluster.request().to_workers == 8


def test_another_request_is_not_overwritten(cluster):
    """What a person asked for is answered first."""
    cluster.submit()
    cluster.follow()
    mine = ResizeRequest(
        id="mine",
        from_workers=2,
        to_workers=3,
        reason="Person",
        explanation="because",
        policy="person",
        by="ada",
        at=cluster.now,
        expires=cluster.now + 60,
    )
    cluster.annotate(REQUEST, mine)
    autoscaler(cluster).turn()
    assert cluster.request() == mine


def test_an_urgent_patch_that_is_refused_is_not_tried_over_and_over(cluster):
    """The refusal is on record, and the Job left alone for its cooldown."""
    cluster.submit(initial=8)
    cluster.follow()
    cluster.submit_gang(pods=4)
    patch = cluster.patch

    def refuse(kind, name, namespace, operations):
        if any(operation["path"].startswith("/spec/tasks") for operation in operations):
            raise InvalidError("no more replicas today")
        return patch(kind, name, namespace, operations)

    cluster.patch = refuse
    scaler = autoscaler(cluster)
    cluster.live(scaler, 59)
    assert [each.phase for each in cluster.outcomes()] == [Phase.REFUSED]
    cluster.patch = patch
    cluster.live(scaler, 5)
    assert cluster.size() == 4


def test_a_cluster_that_does_not_answer_is_asked_again(cluster):
    """An outage is waited out."""
    cluster.submit()
    cluster.follow()
    patch = cluster.patch

    def away(*_):
        raise UnavailableError("away")

    cluster.patch = away
    scaler = autoscaler(cluster)
    cluster.live(scaler, 5)
    cluster.patch = patch
    cluster.live(scaler, 5)
    assert cluster.request().to_workers == 8


def test_a_view_that_is_too_old_is_given_up(cluster):
    """`run` ends with an error rather than decide on what was; whoever runs it starts it again."""
    cluster.submit()
    cluster.stale_since = cluster.now - STALE_S - 1
    with pytest.raises(UnavailableError):
        autoscaler(cluster).run()


def test_policies_stop_before_the_view_is_given_up(cluster):
    """Nothing is asked for, and it is told why, until the cluster is seen again."""
    cluster.submit()
    cluster.follow()
    scaler = autoscaler(cluster)
    cluster.stale_since = cluster.now - (GuardSettings().stale_s + STALE_S) / 2
    scaler._check_view()
    cluster.live(scaler, 1)
    assert annotation(cluster.job(), REQUEST) is None
    cluster.stale_since = None
    scaler.wake()
    scaler.turn()
    assert cluster.request().to_workers == 8


def test_run_ends_with_its_job(cluster):
    """And gives back its Leases."""
    cluster.submit()
    waited, rounds = cluster.wait, itertools.count()

    def wait(version, timeout_s):
        if next(rounds) == 3:
            with cluster.store.transaction() as (world, now):
                world.delete("Job", ("ml", "digits"), now)
        return waited(version, timeout_s)

    cluster.wait = wait
    autoscaler(cluster, only_for="ml/digits").run()
    lease = Lease(cluster, "ml", lease_name("research"), holder="x", clock=lambda: cluster.now)
    assert not lease.look().holder


def test_the_timeline_is_kept(cluster, tmp_path):
    """A line for each change of the queue, and for each decision that is news; a torn line stays alone."""
    (tmp_path / "queue.jsonl").write_text('{"kind":"queue","ti')
    cluster.submit()
    cluster.follow()
    scaler = autoscaler(cluster, log=QueueLog(tmp_path))
    cluster.live(scaler, 25)
    torn, *lines = (tmp_path / "queue.jsonl").read_text().splitlines()
    assert torn == '{"kind":"queue","ti'
    lines = [json.loads(line) for line in lines]
    assert [(line["kind"], line.get("reason"), line.get("request")) for line in lines] == [
        ("queue", None, None),
        ("decision", "QueueIdle", cluster.request().id),
        ("decision", "ResizeOpen", None),
    ]
    assert lines[1] == {
        "kind": "decision",
        "time": cluster.request().at,
        "job": "ml/digits",
        "from": 2,
        "to": 8,
        "reason": "QueueIdle",
        "explanation": "6 of the queue's 8 GPUs are idle and no gang waits: digits grows from 2 to 8 workers",
        "policy": "threshold",
        "request": cluster.request().id,
    }


def test_a_timeline_that_cannot_be_written_stops_nobody(cluster, tmp_path, caplog):
    """Scaling goes on, with a warning."""
    (tmp_path / "folder").write_text("in the way")
    cluster.submit()
    cluster.follow()
    autoscaler(cluster, log=QueueLog(tmp_path / "folder")).turn()
    assert cluster.request().to_workers == 8
    assert "cannot be written" in caplog.text
