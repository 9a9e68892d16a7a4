# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano autoscaler run` on any cluster with Volcano: what its users see, whoever is killed meanwhile."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from anywhere.autoscaler import Autoscaler
from anywhere.ground import Ground
from kfp_volcano.elastic.autoscaler.leading import lease_name
from kfp_volcano.elastic.autoscaler.lease import term_of
from kfp_volcano.schemas.names import RESIZE
from kfp_volcano.schemas.records import Hold, Phase, ResizeOutcome, parse_list
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.launcher.conclude import clean_up
from kfp_volcano.volcano.launcher.jobs import hold, leave, let_go
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.manifests.status import JobState, job_state

if TYPE_CHECKING:
    from kfp_volcano.volcano.cluster.base import Manifest

pytestmark = [pytest.mark.cluster, pytest.mark.anywhere]

Start = Callable[..., Autoscaler]
MOST = 4
ACTOR, REPLICA = "FleetActor", "replica"


@pytest.fixture
def start(ground: Ground, kubeconfig: Path, tmp_path: Path) -> Iterator[Start]:
    """Start replicas that lead all queues of the ground; none is left afterwards."""
    if ground.most < MOST or not ground.place.gpus:
        pytest.skip(f"these nodes have fewer than {MOST} free GPUs, and GPUs are what is shared out")
    made: list[Autoscaler] = []

    def begin(name: str = "one", *options: str) -> Autoscaler:
        made.append(Autoscaler(kubeconfig, ground, name, tmp_path, options))
        return made[-1]

    yield begin
    for each in made:
        if each.alive:
            each.end()
    for each in made:
        each.gone()


def submit(ground: Ground, name: str, queue: str, low: int = 1, high: int = MOST) -> JobRef:
    """An elastic Job that is left to the autoscaler."""
    sizes = list(range(low, high + 1))
    ref = ground.submit(name, queue, replicas={"min": low, "max": high, "initial": low, "sizes": sizes})
    leave(ground.cluster, ref, holder="jobs-submit:run", clock=time.time)
    return ref


def outcomes(ground: Ground, ref: JobRef) -> list[ResizeOutcome]:
    return parse_list(ResizeOutcome, annotation(ref.read(ground.cluster), RESIZE))


def at_rest(ground: Ground, ref: JobRef, fits: Callable[[int], bool]) -> int:
    """Wait until the last resize of a Job has led to a size that fits; the size."""

    def reached(_: object) -> bool:
        found = outcomes(ground, ref)
        return bool(found) and found[-1].phase.final and fits(found[-1].to_workers)

    ground.until("Job", reached)
    size = outcomes(ground, ref)[-1].to_workers
    ground.until_running(ref, size)
    assert workers(ref.read(ground.cluster)) == size
    return size


def settled(ground: Ground, ref: JobRef, size: int) -> ResizeOutcome:
    """Wait until a Job has come to a size; the resize that has led there."""
    at_rest(ground, ref, lambda reached: reached == size)
    return outcomes(ground, ref)[-1]


def command(*arguments: str) -> str:
    """What a command of the CLI prints."""
    line = [sys.executable, "-m", "kfp_volcano", *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True, timeout=120).stdout


def events(ground: Ground, ref: JobRef) -> set[str]:
    """Reasons of the Events on a Job that the autoscaler has written."""
    return {
        each["reason"]
        for each in ground.cluster.list("Event", ground.namespace)[0]
        if each["involvedObject"]["name"] == ref.name
        and (each.get("source") or {}).get("component") == "kfp-volcano-autoscaler"
    }


def leader(ground: Ground, queue: str) -> str:
    """Who leads a queue, without the number of the actor."""
    lease = ground.cluster.get("Lease", lease_name(queue), ground.namespace)
    term = term_of(lease)
    return term.holder.partition("/")[0] if term.holds(time.time()) else ""


def test_a_job_fills_an_idle_queue_and_gives_to_a_gang(ground: Ground, start: Start) -> None:
    """It grows, shrinks for the gang, which gets its GPUs whole, and grows again; each is told and explained."""
    queue = ground.queue(most=MOST)
    autoscaler = start()
    ref = submit(ground, "elastic", queue)
    core = ground.until_running(ref, 1)
    assert settled(ground, ref, MOST).reason == "QueueIdle"
    gang = ground.submit("gang", queue, replicas=2)
    ground.until_running(gang, 2)
    given = settled(ground, ref, MOST - 2)
    assert (given.reason, given.from_workers) == ("GangPending", MOST)
    assert clean_up(ground.cluster, gang.read(ground.cluster))
    settled(ground, ref, MOST)
    assert core <= ground.running(ref)
    ground.until("Event", lambda _: {"ResizeRequested", "Resized"} <= events(ground, ref))
    assert autoscaler.end() == 0
    told = command("autoscaler", "explain", str(ref), "--decisions", str(autoscaler.decisions))
    assert told.index("QueueIdle") < told.index("GangPending")
    assert "all the same" in command("autoscaler", "replay", str(autoscaler.decisions))


def test_a_hold_is_respected_until_it_is_released(ground: Ground, start: Start) -> None:
    """Beside an idle queue, at the size that a person has set; then it grows."""
    queue = ground.queue(most=MOST)
    ref = submit(ground, "held", queue)
    ground.until_running(ref, 1)
    hold(ground.cluster, ref, Hold(until=time.time() + 3600, by="a person", override=2, reason="measuring"))
    start()
    assert settled(ground, ref, 2).reason == "Override"
    ground.until("Event", lambda _: "Hold" in events(ground, ref))
    assert [each.to_workers for each in outcomes(ground, ref)] == [2]
    let_go(ground.cluster, ref, by="a person", now=time.time())
    settled(ground, ref, MOST)


def test_whoever_is_killed_the_queue_is_led_on(ground: Ground, start: Start) -> None:
    """The actor, Ray's processes, the whole replica, at random moments: a Job is where it is to be each time."""
    queue = ground.queue(most=MOST)
    chance = random.Random(20260302)
    autoscaler = start()
    ref = submit(ground, "hardy", queue)
    core = ground.until_running(ref, 1)
    settled(ground, ref, MOST)
    for round_, victim in enumerate((ACTOR, "raylet", "gcs_server", REPLICA)):
        gang = ground.submit(f"gang-{round_}", queue, replicas=2)
        moment = chance.choice([JobState.PENDING, JobState.RUNNING])
        ground.until("Job", lambda found, moment=moment, gang=gang: _is(found, gang, moment))
        if victim == REPLICA:
            autoscaler.kill()
            autoscaler = start()
        else:
            _kill(autoscaler, victim)
        ground.until_running(gang, 2)
        settled(ground, ref, MOST - 2)
        assert clean_up(ground.cluster, gang.read(ground.cluster))
        settled(ground, ref, MOST)
    assert core <= ground.running(ref)
    assert {each.phase for each in outcomes(ground, ref)} == {Phase.DONE}


def _is(found: list[Manifest], gang: JobRef, state: JobState) -> bool:
    return any(each["metadata"]["name"] == gang.name and job_state(each) is state for each in found)


def _kill(autoscaler: Autoscaler, victim: str) -> None:
    """The newest actor, or the process of Ray's with such a name."""
    named = [each for each in autoscaler.processes() if victim in each.name()]
    (process,) = [each for each in named if victim != ACTOR or each.pid == autoscaler.actor]
    process.kill()


def test_two_replicas_hand_over(ground: Ground, start: Start) -> None:
    """One leads; the other takes over when it is killed, and when it ends; no request is made twice."""
    queue = ground.queue(most=MOST)
    replicas = {name: start(name) for name in ("one", "two")}
    for each in replicas.values():
        each.until_said("actor 0 is at work")
    ref = submit(ground, "served", queue)
    settled(ground, ref, MOST)
    first = leader(ground, queue)
    replicas[first].kill()
    ground.until("Lease", lambda _: leader(ground, queue) not in {first, ""})
    second = leader(ground, queue)
    gang = ground.submit("gang", queue, replicas=2)
    ground.until_running(gang, 2)
    assert settled(ground, ref, MOST - 2).executed_by.startswith(second)
    replicas[first] = start(first)
    replicas[first].until_said("actor 0 is at work")
    assert replicas[second].end() == 0
    ground.until("Lease", lambda _: leader(ground, queue) == first)
    assert clean_up(ground.cluster, gang.read(ground.cluster))
    assert settled(ground, ref, MOST).executed_by.startswith(first)
    assert len({each.id for each in outcomes(ground, ref)}) == len(outcomes(ground, ref)) == 3


def test_what_a_queue_has_borrowed_goes_back(ground: Ground, start: Start) -> None:
    """A Job grows beyond what its queue deserves while nobody needs it, and gives it to the gang whose queue does."""
    most = ground.place.gpus
    if most > MOST * 4:
        pytest.skip("these nodes have so many free GPUs that no queue need give any back")
    share = most // 2
    borrower, owner = (ground.queue(most=most, deserved=share) for _ in range(2))
    start()
    ref = submit(ground, "borrower", borrower, high=most)
    core = ground.until_running(ref, 1)
    at_rest(ground, ref, lambda size: size > share)
    gang = ground.submit("owner", owner, replicas=share)
    ground.until_running(gang, share)
    at_rest(ground, ref, lambda size: size <= most - share)
    assert core <= ground.running(ref)
    assert clean_up(ground.cluster, gang.read(ground.cluster))
    at_rest(ground, ref, lambda size: size > most - share)


def test_a_policy_is_read_again_when_it_changes(ground: Ground, start: Start, tmp_path: Path) -> None:
    """A queue that is not idle enough for the one is for the other; a file with a mistake changes nothing."""
    queue = ground.queue(most=MOST)
    file = tmp_path / "policy.yaml"

    def write(share: float) -> None:
        spec = {"queues": [queue], "policy": "threshold", "threshold": {"up": {"idleShare": share}}}
        policy = {"apiVersion": "kfp-volcano/v1", "kind": "Policy", "metadata": {"name": "ours"}, "spec": spec}
        other = file.with_suffix(".new")
        other.write_text(yaml.safe_dump(policy), encoding="utf-8")
        other.rename(file)

    write(0.9)
    autoscaler = start("one", "--policies", str(file))
    ref = submit(ground, "steered", queue, high=MOST - 1)
    ground.until_running(ref, 1)
    autoscaler.until_said("leads queue")
    write(2.0)
    autoscaler.until_said("idleShare")
    assert outcomes(ground, ref) == []
    write(0.25)
    settled(ground, ref, MOST - 1)
