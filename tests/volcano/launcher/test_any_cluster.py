# SPDX-License-Identifier: Apache-2.0
"""A Job's whole life on any cluster with Volcano, by the functions behind the steps of the DAG.

On the cluster's own nodes, and on nodes of the tests' own: what needs a container that really runs is left out where
none does, and the loss of a node is tried on the tests' own only.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from anywhere.ground import WAITS, Ground
from kfp_volcano.elastic.autoscaler.execution import execute
from kfp_volcano.elastic.autoscaler.fleet import Fleet
from kfp_volcano.elastic.policies.guards import Guarded
from kfp_volcano.elastic.policies.threshold import Threshold
from kfp_volcano.errors import ConflictError, JobFailedError, NotFoundError
from kfp_volcano.schemas.records import Phase
from kfp_volcano.volcano.launcher.conclude import clean_up, conclude
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.manifests.status import JobState, job_state

pytestmark = [pytest.mark.cluster, pytest.mark.anywhere]

LINES = 40
PRINTS = f"n=0; while [ $n -lt {LINES} ]; do n=$((n+1)); echo line $n; done; sleep 2"


def really_runs(ground: Ground) -> None:
    if not ground.place.runs:
        pytest.skip("no container really runs on these nodes: nothing is printed, and nothing ends by itself")


def elastic(low: int, high: int, initial: int | None = None) -> dict[str, object]:
    return {"min": low, "max": high, "initial": initial or low, "sizes": list(range(low, high + 1))}


def numbers(said: list[str]) -> Counter[str]:
    return Counter(line for line in said if re.search(r" \| line \d+$", line))


def test_a_job_is_submitted_followed_and_succeeds(ground: Ground, tmp_path: Path) -> None:
    """Every line of every worker once, the step is done, and conclude lets the Job stay."""
    really_runs(ground)
    ref = ground.submit("whole", ground.queue(most=2), script=PRINTS, replicas=2)
    follower = ground.follow(ref)
    assert follower.ended() == "done"
    assert numbers(follower.said) == {f"core-{pod} | line {n}": 1 for pod in range(2) for n in range(1, LINES + 1)}
    job = ref.read(ground.cluster)
    conclude(ground.cluster, job, out=tmp_path, started_at=time.time(), now=time.time(), with_ledgers=False)
    assert job_state(ref.read(ground.cluster)) is JobState.SUCCEEDED


def test_pods_that_end_well_end_the_step_well(ground: Ground) -> None:
    """Also where they printed nothing."""
    ref = ground.submit("quiet", ground.queue(most=1), script="sleep 3" if ground.place.runs else WAITS)
    follower = ground.follow(ref)
    follower.until_said("is Running")
    if not ground.place.runs and ground.place.simulated is None:
        pytest.skip("pods never end on these nodes")
    ground.finish(ref)
    assert follower.ended() == "done"


def test_a_job_that_fails_fails_its_step(ground: Ground) -> None:
    """With the pod, its exit code and its last words, after as many starts as were asked for."""
    really_runs(ground)
    script = "echo that went wrong; exit 3"
    ref = ground.submit("failing", ground.queue(most=1), script=script, retries=1)
    error = ground.follow(ref).ended()
    assert isinstance(error, JobFailedError)
    assert "exit code 3" in str(error)
    assert "that went wrong" in str(error)


def test_a_gang_waits_whole_says_why_and_starts(ground: Ground) -> None:
    """It has no pod running as long as one of them has no place."""
    most = min(ground.most, 4)
    queue = ground.queue(most=most)
    first = ground.submit("first", queue, replicas=most - 1)
    ground.until_running(first, most - 1)
    second = ground.submit("second", queue, replicas=2)
    follower = ground.follow(second)
    follower.until_said("it waits: ")
    assert not ground.running(second)
    assert clean_up(ground.cluster, first.read(ground.cluster))
    ground.until_running(second, 2)
    follower.until_said("is Running")


@pytest.mark.parametrize("by_step", [True, False], ids=["its own step", "the step that follows"])
def test_a_job_is_resized_up_and_down(ground: Ground, by_step: bool) -> None:
    """Those who stay are not touched; the outcome says what was reached."""
    most = min(ground.most, 4)
    ref = ground.submit("elastic", ground.queue(most=most), replicas=elastic(1, most))
    begun = ground.until_running(ref, 1)
    follower = None if by_step else ground.follow(ref)
    if follower:
        follower.until_said("is Running")
    for before, after in ((1, most), (most, 2)):
        request = ground.ask(ref, after)
        if follower:
            follower.until_said(f"resize Done: {after} workers")
        else:
            outcome = execute(ground.cluster, ref.namespace, ref.name, holder="run:run")
            assert (outcome.id, outcome.phase) == (request, Phase.DONE)
            assert (outcome.from_workers, outcome.to_workers) == (before, after)
        assert begun <= ground.until_running(ref, after)
        assert workers(ref.read(ground.cluster)) == after
    assert job_state(ref.read(ground.cluster)) is JobState.RUNNING


def test_a_resize_beyond_what_there_is_settles_at_what_found_a_node(ground: Ground) -> None:
    """Pods that wait are taken back, and the Job trains on."""
    if ground.most < 3:
        pytest.skip("these nodes have fewer than 3 free GPUs")
    ref = ground.submit("greedy", ground.queue(most=2), replicas=elastic(1, 3))
    ground.until_running(ref, 1)
    ground.ask(ref, 3)
    outcome = execute(ground.cluster, ref.namespace, ref.name, holder="run:run")
    assert (outcome.phase, outcome.to_workers) == (Phase.DONE, 2)
    ground.until_running(ref, 2)


def test_a_cancelled_job_goes_with_all_that_belongs_to_it(ground: Ground, tmp_path: Path) -> None:
    """Conclude removes what runs; whoever follows it is told, and a second conclude finds nothing to do."""
    ref = ground.submit("cancelled", ground.queue(most=2), replicas=elastic(1, 2))
    ground.until_running(ref, 1)
    follower = ground.follow(ref)
    follower.until_said("is Running")
    job = ref.read(ground.cluster)
    conclude(ground.cluster, job, out=tmp_path, started_at=time.time(), now=time.time(), with_ledgers=False)
    assert isinstance(follower.ended(), NotFoundError)
    assert not clean_up(ground.cluster, job)
    for kind in ("Job", "Pod", "PodGroup", "Lease"):
        ground.until(kind, lambda found: not found)
    left = {"kube-root-ca.crt", "istio-ca-root-cert"}
    ground.until("ConfigMap", lambda found: {each["metadata"]["name"] for each in found} <= left)


def test_a_retried_step_adopts_its_job(ground: Ground) -> None:
    """One Job, whose pods train on; another run's or another spec's is refused."""
    queue = ground.queue(most=2)
    ref = ground.submit("retried", queue)
    running = ground.until_running(ref, 1)
    assert ground.submit("retried", queue) == ref
    with pytest.raises(ConflictError, match="another spec"):
        ground.submit("retried", queue, replicas=2)
    assert ground.submit("retried", queue, run_id="other") != ref
    assert ground.running(ref) == running


def test_the_next_attempt_of_a_step_goes_on_with_the_log(ground: Ground) -> None:
    """No line is lost and none is repeated, from one step of the DAG to the next."""
    really_runs(ground)
    script = f"n=0; while [ $n -lt {LINES} ]; do n=$((n+1)); echo line $n; sleep 0.2; done; sleep 1"
    ref = ground.submit("logged", ground.queue(most=2), script=script, replicas=elastic(1, 2))
    first = ground.follow(ref, last=False)
    first.until_said("line 5")
    request = ground.ask(ref, 2)
    assert first.ended() == "resized"
    assert execute(ground.cluster, ref.namespace, ref.name, holder="run:run").id == request
    second = ground.follow(ref, step="train-2")
    assert second.ended() == "done"
    core = {line: count for line, count in numbers(first.said + second.said).items() if line.startswith("core-")}
    assert core == {f"core-0 | line {n}": 1 for n in range(1, LINES + 1)}


@pytest.mark.parametrize("strategy", ["restart", "fixed"])
def test_a_job_outlives_the_loss_of_a_node(ground: Ground, strategy: str) -> None:
    """Its pods come back on another, the step that follows it goes on, and the Job succeeds."""
    nodes = ground.place.simulated
    if nodes is None:
        pytest.skip("no node of the cluster's own is taken away")
    replicas = elastic(3, 4) if strategy == "restart" else 3
    ref = ground.submit("homeless", ground.queue(most=4), replicas=replicas, strategy=strategy)
    before = ground.until_running(ref, 3)
    follower = ground.follow(ref)
    follower.until_said("is Running")
    nodes.lose(next(pod["spec"]["nodeName"] for pod in ground.pods(ref) if pod["metadata"]["uid"] in before))
    ground.until("Pod", lambda _: before - ground.running(ref))
    after = ground.until_running(ref, 3)
    assert after != before
    ground.finish(ref)
    assert follower.ended() == "done"


def test_another_queues_gang_gets_what_is_surplus(ground: Ground) -> None:
    """The autoscaler, or Volcano's own reclaim, takes it; the Job's core is not touched, and the Job is settled."""
    if not ground.place.gpus:
        pytest.skip("the autoscaler shares out GPUs, and these nodes have none that are free")
    most = ground.most
    if most < 4:
        pytest.skip("these nodes have fewer than 4 free GPUs")
    queue = ground.queue(most=most)
    ref = ground.submit("surplus", queue, replicas=elastic(1, most))
    core = ground.until_running(ref, 1)
    ground.follow(ref).until_said("is Running")
    with _autoscaling(ground, queue, ref):
        ground.until_running(ref, most)
        gang = ground.submit("gang", queue, replicas=most // 2)
        ground.until_running(gang, most // 2)
        ground.until("Job", lambda _: workers(ref.read(ground.cluster)) <= most - most // 2)
    assert core <= ground.running(ref)
    ground.until_running(ref, workers(ref.read(ground.cluster)))


class _autoscaling:  # noqa: N801  # used as a function
    """The autoscaler of a queue, in a thread, for a while."""

    def __init__(self, ground: Ground, queue: str, ref: JobRef) -> None:
        self._autoscaler = Fleet(
            ground.cluster,
            namespace=ground.namespace,
            queues=lambda _: [queue],
            policies=lambda _: Guarded(Threshold()),
            identity=f"sidecar:{ref}",
        )
        self._thread = threading.Thread(target=self._autoscaler.run, name="autoscaler", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._autoscaler.stop()
        self._thread.join()
