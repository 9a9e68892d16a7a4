# SPDX-License-Identifier: Apache-2.0
"""A fleet that leads several queues, and what it tells, in virtual time."""

from __future__ import annotations

from kfp_volcano.elastic.autoscaler import fleet as fleet_module
from kfp_volcano.elastic.autoscaler.fleet import HUNGRY_S, LOOK_S, Fleet
from kfp_volcano.elastic.autoscaler.leading import LEAD_S, lease_name
from kfp_volcano.elastic.autoscaler.lease import Lease
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.errors import ForbiddenError, InvalidError, UnavailableError
from kfp_volcano.schemas.names import REQUEST
from kfp_volcano.schemas.records import Phase
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.model.control import run_controllers
from kfp_volcano.volcano.model.queues import root_queue


class Heard:
    """A recorder that keeps what it is told."""

    def __init__(self):
        self.turns, self.resizes, self.ends, self.failures = [], [], [], []

    def decided(self, snapshot, decisions, requests, *, lag_s):
        self.turns.append((snapshot.queue, snapshot.at, dict(requests), lag_s))

    def resized(self, queue, job, outcome):
        self.resizes.append((queue, job, outcome.phase))

    def ended(self, queue, end):
        self.ends.append((queue, end.job, end.state))

    def failed(self, queue, error):
        self.failures.append((queue, str(error)))


def fleet(cluster, queues, policies=lambda _: Guarded(Threshold()), **more):
    return Fleet(
        cluster,
        namespace="ml",
        queues=queues,
        policies=policies,
        identity="shared",
        view=cluster.view(),
        clock=lambda: cluster.now,
        **more,
    )


def open_queue(cluster, name, **spec):
    with cluster.store.transaction() as (world, now):
        world.create({**root_queue(), "metadata": {"name": name}, "spec": {"weight": 1, **spec}}, now)
        run_controllers(world, now)


def test_queues_that_come_are_led_and_those_that_go_are_let_go(cluster):
    """As the selector says, from the moment in which they change."""
    heard = Heard()
    scaler = fleet(
        cluster,
        lambda index: [name for name, labels in index.queues.items() if "led" in labels],
        recorders=[heard],
    )
    cluster.live(scaler, 1)
    assert scaler.led == frozenset()
    label = [{"op": "add", "path": "/metadata/labels", "value": {"led": "yes"}}]
    cluster.store.patch("Queue", "research", "", label)
    cluster.live(scaler, 1)
    assert scaler.led == {"research"}
    assert {turn[0] for turn in heard.turns} == {"research"}
    cluster.store.patch("Queue", "research", "", [{"op": "remove", "path": "/metadata/labels/led"}])
    cluster.live(scaler, 1)
    assert scaler.led == frozenset()
    assert not Lease(cluster, "ml", lease_name("research"), holder="x", clock=lambda: cluster.now).look().holder


def test_a_queue_whose_turn_fails_does_not_stop_the_others(cluster):
    """Whatever is raised; it is told, and tried again."""
    open_queue(cluster, "broken")
    heard = Heard()

    def policies(queue):
        if queue == "broken":
            raise RuntimeError("no policy")
        return Guarded(Threshold())

    cluster.submit()
    cluster.follow()
    scaler = fleet(cluster, lambda _: ["broken", "research"], policies, recorders=[heard])
    cluster.live(scaler, 20)
    assert cluster.request().to_workers == 8
    assert set(heard.failures) == {("broken", "no policy")}
    assert len(heard.failures) > 1


def test_a_recorder_that_fails_stops_nobody(cluster):
    """Nor the other recorders."""
    cluster.submit()
    cluster.follow()
    heard = Heard()
    scaler = fleet(cluster, lambda _: ["research"], recorders=[object(), heard])
    scaler.turn()
    assert cluster.request().to_workers == 8
    assert [turn[2] for turn in heard.turns] == [{"ml/digits": cluster.request().id}]


def test_what_has_ended_is_told_once(cluster):
    """Resizes, whoever carried them out, and Jobs; not those that had ended before."""
    cluster.submit()
    cluster.follow().release()
    heard = Heard()
    scaler = fleet(cluster, lambda _: ["research"], recorders=[heard])
    cluster.live(scaler, 30)
    assert heard.resizes == [("research", "ml/digits", Phase.DONE)]
    later = Heard()
    cluster.live(fleet(cluster, lambda _: ["research"], recorders=[later]), 1)
    with cluster.store.transaction() as (world, _):
        job = world.get("Job", ("ml", "digits"))
        world.update({**job, "status": {**job["status"], "state": {"phase": "Completed"}}})
    cluster.live(scaler, 30)
    assert heard.ends == [("research", "ml/digits", "Succeeded")]
    assert (later.resizes, later.ends) == ([], [])


def test_nothing_is_looked_at_while_nothing_happens(cluster):
    """But now and then, and to renew the Lease."""
    cluster.submit(initial=8)
    cluster.follow()
    heard = Heard()
    scaler = fleet(cluster, lambda _: ["research"], recorders=[heard])
    cluster.live(scaler, 1)
    heard.turns.clear()
    cluster.live(scaler, 5 * LOOK_S)
    assert len(heard.turns) == 5


def test_room_that_others_leave_is_seen_by_who_wants_it(cluster):
    """A queue in which nothing has changed has its turn when GPUs come free that its Jobs may take."""
    open_queue(cluster, "other")
    cluster.submit_gang(pods=6)
    with cluster.store.transaction() as (world, _):
        group = next(iter(world.objects["PodGroup"].values()))
        world.update({**group, "spec": {**group["spec"], "queue": "other"}})
    cluster.submit()
    cluster.follow()
    heard = Heard()
    scaler = fleet(cluster, lambda _: ["research"], recorders=[heard])
    cluster.live(scaler, 2)
    assert annotation(cluster.job(), REQUEST) is None
    heard.turns.clear()
    freed_at = cluster.now
    with cluster.store.transaction() as (world, now):
        world.delete("Job", ("vision", "big"), now)
    cluster.live(scaler, 2)
    assert cluster.request().to_workers == 8
    assert heard.turns[0][1] - freed_at <= HUNGRY_S


def test_leases_that_were_taken_together_are_renewed_apart(cluster):
    """One after another, so that the API server does not get them all at once for ever."""
    names = [f"q{number}" for number in range(20)]
    for name in names:
        open_queue(cluster, name)
    scaler = fleet(cluster, lambda _: names)
    cluster.live(scaler, 1)
    assert scaler.led == set(names)
    patch, renewed = cluster.patch, []

    def noted(kind, *args):
        if kind == "Lease":
            renewed.append(cluster.now)
        return patch(kind, *args)

    cluster.patch = noted
    cluster.live(scaler, LEAD_S)
    assert len(renewed) in range(40, 81)
    assert max(renewed.count(at) for at in renewed) <= 2


def test_leases_of_many_queues_are_kept_beside_the_turns(cluster, monkeypatch):
    """By whom it hands them to, so that no turn waits for them; all are held all the time, and given back."""
    names, kept, led = {f"q{number}" for number in range(12)}, [], []
    for name in names:
        open_queue(cluster, name)

    class Renewers:
        def __init__(self, *_, **__): ...

        def submit(self, keep, leadership):
            kept.append(leadership.queue)
            keep(leadership)

        def shutdown(self, *, cancel_futures): ...

    monkeypatch.setattr(fleet_module, "ThreadPoolExecutor", Renewers)
    scaler = fleet(cluster, lambda _: names)
    waited, end = cluster.wait, cluster.now + 3 * LEAD_S

    def wait(version, timeout_s):
        led.append(scaler.led)
        if cluster.now >= end:
            scaler.stop()
        return waited(version, timeout_s)

    cluster.wait = wait
    scaler.run()
    assert set(led[20:]) == {frozenset(names)}
    assert all(kept.count(name) >= 8 for name in names)
    lease = Lease(cluster, "ml", lease_name("q0"), holder="x", clock=lambda: cluster.now)
    assert not lease.look().holder


def test_an_outside_reason_has_every_queue_looked_at(cluster):
    """A policy that was changed counts at once."""
    open_queue(cluster, "other")
    heard = Heard()
    scaler = fleet(cluster, lambda _: ["other", "research"], recorders=[heard])
    cluster.live(scaler, 1)
    heard.turns.clear()
    scaler.turn()
    assert heard.turns == []
    scaler.wake()
    scaler.turn()
    assert {turn[0] for turn in heard.turns} == {"other", "research"}


def refusing(cluster, monkeypatch, barred, error):
    """Whoever changes that Job is told this."""
    patch = cluster.patch

    def guarded(kind, name, namespace, changes):
        if (kind, name) == ("Job", barred):
            raise error
        return patch(kind, name, namespace, changes)

    monkeypatch.setattr(cluster, "patch", guarded)


def test_what_is_refused_for_one_job_stops_no_other(cluster, monkeypatch):
    """An admission that lets nobody change the first Job: the second is resized, and the refusal is told."""
    for name in ("barred", "digits"):
        cluster.submit(name, high=4)
        cluster.follow(name=name).release()
    heard = Heard()
    refusing(cluster, monkeypatch, "barred", InvalidError("not this one"))
    cluster.live(fleet(cluster, lambda _: ["research"], recorders=[heard]), 1)
    assert (cluster.size("barred"), cluster.size("digits")) == (2, 4)
    assert set(heard.failures) == {("research", "not this one")}


def test_classes_that_may_not_be_changed_stop_no_resize(cluster):
    """What is done beside sizes is not worth a Job's size."""

    class Barred:
        def due(self, queue, now):
            return True

        def ranked(self, queue, index, now):
            return ()

        def tend(self, snapshot, memory):
            raise ForbiddenError("no classes")

    cluster.submit()
    cluster.follow().release()
    heard = Heard()
    cluster.live(fleet(cluster, lambda _: ["research"], recorders=[heard], tender=Barred()), 1)
    assert cluster.size() == 8
    assert ("research", "no classes") in heard.failures


def test_a_turn_that_breaks_off_tells_what_it_has_asked_for(cluster, monkeypatch):
    """Or the log would hold a resize that nobody asked for."""
    for name in ("digits", "letters"):
        cluster.submit(name, high=4)
        cluster.follow(name=name)
    heard = Heard()
    refusing(cluster, monkeypatch, "letters", UnavailableError("gone"))
    fleet(cluster, lambda _: ["research"], recorders=[heard]).turn()
    assert [set(requests) for _, _, requests, _ in heard.turns] == [{"ml/digits"}]
    assert heard.failures == [("research", "gone")]


def test_nothing_is_kept_of_a_job_that_went_in_the_middle_of_a_resize(cluster):
    """An autoscaler runs for months, and Jobs are deleted at any moment."""
    cluster.submit()
    cluster.follow()
    scaler = fleet(cluster, lambda _: ["research"])
    scaler.turn()
    assert set(scaler._executor.concerned) == {"ml/digits"}
    cluster.delete("Job", "digits", "ml")
    cluster.settle()
    scaler.turn()
    assert not scaler._executor.concerned
