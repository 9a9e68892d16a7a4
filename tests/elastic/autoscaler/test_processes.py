# SPDX-License-Identifier: Apache-2.0
"""The programs, as real processes on a real host: the actor and the coordinator, killed and going on."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import ray

from kfp_volcano.elastic.autoscaler.actor import RAY_NAMESPACE, sidecar_name, start_sidecar
from kfp_volcano.elastic.autoscaler.execution import execute
from kfp_volcano.elastic.autoscaler.leading import lease_name
from kfp_volcano.elastic.autoscaler.lease import JobLease, term_of
from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import (
    Hold,
    MembershipChange,
    Phase,
    Progress,
    ResizeOutcome,
    ResizeRequest,
    dump,
    parse,
    parse_list,
)
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import annotation, update_annotation
from kfp_volcano.volcano.cluster.host import RemoteCluster, start_host, stop_host
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.manifests.status import JobState, job_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOOK_S = 0.5
"""How often what is not watched, such as Leases, is looked at, seconds."""
PATIENCE_S = 90.0
POLICY = """
apiVersion: kfp-volcano/v1
kind: Policy
metadata: {name: all}
spec: {queues: ["*"], policy: hpa}
"""
TOKEN: dict[str, str] = {}
"""What other processes need to reach the host's Ray."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An embedded cluster in its own Ray, as `KFP_VOLCANO_CLUSTER` names it."""
    address = start_host(tmp_path_factory.mktemp("cluster"))
    TOKEN.update({name: value for name, value in os.environ.items() if name.startswith("RAY_")})
    yield f"embedded:{address}"
    # Informers that have been stopped end with the next event of their kind; Ray must not go before.
    cluster = RemoteCluster(address)
    cluster.create(gang())
    for thread in threading.enumerate():
        if thread.name.startswith("informer-"):
            thread.join(PATIENCE_S)
    stop_host(grace_s=0)


class Seen:
    """The cluster as a test sees it: changes are waited for, never polled."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.informer = Informer(cluster, ("Job", "Pod", "Lease"))
        self.informer.start()

    def submit(self, name: str, *, coordinated: bool = False, low: int = 2, high: int = 8) -> None:
        job = training_job(
            {
                "apiVersion": "kfp-volcano/v1",
                "kind": "TrainingJob",
                "metadata": {"name": name, "namespace": "ml"},
                "spec": {
                    "framework": "pytorch",
                    "image": "unused",
                    "command": ["sleep", "600"],
                    "queue": "research",
                    "roles": {"worker": {"replicas": {"min": low, "max": high}, "resources": {"gpu": 1}}},
                    "elasticity": {"cooldown": "1s", "grace": "5s"},
                    "checkpoint": {"volume": "checkpoints"},
                },
            }
        )
        manifest = job_manifest(job, name=name, run_id="run-1", step="submit", workers=low)
        if not coordinated:
            coordinator = next(task for task in manifest["spec"]["tasks"] if task["name"] == names.COORDINATOR)
            coordinator["template"]["spec"]["containers"][0]["command"] = ["sleep", "600"]
        self.cluster.create(manifest)
        self.until(lambda: job_state(self.job(name)) is JobState.RUNNING)

    def job(self, name: str) -> Any:
        found = (job for job in self.informer.objects("Job") if job["metadata"]["name"] == name)
        return next(found, {"metadata": {}})

    def annotation(self, name: str, key: str) -> str | None:
        return annotation(self.job(name), key)

    def outcomes(self, name: str) -> list[ResizeOutcome]:
        return parse_list(ResizeOutcome, self.annotation(name, names.RESIZE))

    def running(self, name: str) -> int:
        return sum(
            pod["metadata"]["name"].startswith(f"{name}-") and pod["status"].get("phase") == "Running"
            for pod in self.informer.objects("Pod")
        )

    def until(self, condition: Callable[[], Any]) -> None:
        deadline, version = time.monotonic() + PATIENCE_S, 0
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, f"in vain: {[job['metadata'] for job in self.informer.objects('Job')]}"
            version = self.informer.wait(version, timeout_s=min(left, LOOK_S))


@pytest.fixture
def seen(host: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """The host's cluster, empty again afterwards."""
    monkeypatch.setenv(names.ENV_CLUSTER, host)
    view = Seen(RemoteCluster(host.removeprefix("embedded:")))
    yield view
    for job in view.cluster.list("Job", "ml")[0]:
        view.cluster.delete("Job", job["metadata"]["name"], "ml")
    view.until(lambda: not view.informer.objects("Job"))
    view.informer.stop()


def gone(pid: int) -> None:
    """Wait until a process is no more."""
    try:
        psutil.Process(pid).wait(PATIENCE_S)
    except psutil.NoSuchProcess:
        return


def trains(seen, name, *phases):
    """Once the Job's resizes have come so far, let its training show the size it was given."""
    seen.until(lambda: [each.phase for each in seen.outcomes(name)] == list(phases))
    workers = seen.outcomes(name)[-1].to_workers
    progress = Progress(
        step=1, total_steps=9, samples=64, epoch=0, throughput=1.0, workers=workers, batch=64, lr=0.1, at=time.time()
    )
    update_annotation(seen.cluster, "Job", name, "ml", names.PROGRESS, lambda _: dump(progress))


def test_an_actor_that_is_killed_comes_back_and_goes_on(seen, tmp_path):
    """kill -9 before, while and after it acts: the Job is resized all the same, and the actor ends with its Job."""
    seen.submit("digits")
    follower = JobLease(seen.cluster, "ml", "digits", holder="train-1:run-1", clock=time.time)
    assert follower.hold()
    actor = start_sidecar(queue="research", job="ml/digits", folder=tmp_path)
    assert start_sidecar(queue="research", job="ml/digits", folder=tmp_path) == actor
    seen.until(lambda: seen.annotation("digits", names.REQUEST))
    pid = ray.get(actor.pid.remote())
    assert "FleetActor" in " ".join(psutil.Process(pid).cmdline())
    os.kill(pid, signal.SIGKILL)
    follower.release()  # the next one finds nobody following: it is to act itself
    trains(seen, "digits", Phase.READY)
    seen.until(lambda: [each.phase for each in seen.outcomes("digits")] == [Phase.DONE])
    assert seen.running("digits") == 9
    os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)
    seen.cluster.create(gang())
    seen.until(lambda: seen.running("big") == 4)
    trains(seen, "digits", Phase.DONE, Phase.READY)
    seen.until(lambda: [each.phase for each in seen.outcomes("digits")] == [Phase.DONE, Phase.DONE])
    assert seen.outcomes("digits")[-1].reason == "GangPending"
    assert (tmp_path / "queue.jsonl").read_text().count("GangPending") == 1
    pid = ray.get(actor.pid.remote())
    for name in ("digits", "big"):
        seen.cluster.delete("Job", name, "ml")
    gone(pid)
    with pytest.raises(ValueError, match=sidecar_name("ml/digits")):
        ray.get_actor(sidecar_name("ml/digits"), RAY_NAMESPACE)


class Replica:
    """`kfp-volcano autoscaler run` as a process, started anew under the same name as Kubernetes would."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", "kfp_volcano", "autoscaler", "run", "--queue", "research"]
        self._command += ["--identity", name, "--metrics-port", "0", "--log-format", "json"]
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, env={**os.environ, **TOKEN})

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def replicas(seen: Seen, tmp_path: Path) -> Iterator[list[Replica]]:
    """Two of them; none is left afterwards."""
    made = [Replica(name, tmp_path) for name in ("one", "two")]
    yield made
    for each in made:
        each.kill()


def leads(seen: Seen) -> str:
    """Who holds the queue's Lease."""
    name = lease_name("research")
    found = (lease for lease in seen.informer.objects("Lease") if lease["metadata"]["name"] == name)
    return next((term_of(lease).holder.partition("/")[0] for lease in found), "")


def keeps_training(seen: Seen, name: str, size: int) -> None:
    """Once the Job's pods for a size run, its training shows that size."""

    def ready() -> bool:
        found = seen.outcomes(name)
        return bool(found) and found[-1].to_workers == size and found[-1].phase in {Phase.READY, Phase.DONE}

    seen.until(ready)
    update_annotation(
        seen.cluster, "Job", name, "ml", names.PROGRESS, lambda _: dump(replace(progress(1), workers=size))
    )


def at_rest(seen: Seen, name: str, size: int) -> bool:
    """Whether the Job has come to a size."""
    found = seen.outcomes(name)
    return bool(found) and found[-1].to_workers == size and found[-1].phase is Phase.DONE


def fleet_actors() -> list[int]:
    """The processes of all actors."""
    ours = psutil.Process().children(recursive=True)
    return [each.pid for each in ours if each.status() != psutil.STATUS_ZOMBIE and "FleetActor" in each.name()]


class Versions:
    """Every version of a Job, as they come: its request's id and its outcomes."""

    def __init__(self, cluster: Any, name: str) -> None:
        self.seen: list[tuple[str | None, list[ResizeOutcome]]] = []
        self._stopped = threading.Event()
        self._cluster, self._name = cluster, name
        self._since = cluster.list("Job", "ml")[1]
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stopped.is_set():
            for event in self._cluster.watch("Job", "ml", resource_version=self._since, timeout_s=1):
                self._since = event.resource_version
                if event.type == "MODIFIED" and event.object["metadata"]["name"] == self._name:
                    request = annotation(event.object, names.REQUEST)
                    asked = parse(ResizeRequest, request).id if request else None
                    self.seen.append((asked, parse_list(ResizeOutcome, annotation(event.object, names.RESIZE))))

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


@pytest.mark.slow
def test_two_replicas_never_decide_twice_whoever_is_killed(seen, replicas):
    """kill -9 of actors and supervisors at any moment: each resize is asked once, after the last one was answered."""
    seen.submit("digits", low=1)
    versions = Versions(seen.cluster, "digits")
    chance = random.Random(7)
    try:
        for turn, size in enumerate((4, 2, 5, 1, 6, 3)):
            hold = Hold(until=time.time() + 600, by="ada", override=size)
            update_annotation(seen.cluster, "Job", "digits", "ml", names.HOLD, lambda _, hold=hold: dump(hold))
            before = len(versions.seen)
            changes = chance.randrange(4)
            seen.until(lambda before=before, changes=changes: len(versions.seen) >= before + changes)
            if turn % 2:
                victim = chance.choice(replicas)
                victim.kill()
                victim.start()
            elif fleet_actors():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(fleet_actors()), signal.SIGKILL)
            trained = threading.Thread(target=keeps_training, args=(seen, "digits", size))
            trained.start()
            seen.until(lambda size=size: at_rest(seen, "digits", size))
            trained.join()
    finally:
        versions.stop()
    asked = list(dict.fromkeys(request for request, _ in versions.seen if request))
    assert len(asked) == 6
    known: str | None = None
    for before, (request, outcomes) in pairwise([(None, []), *versions.seen]):
        if request != known:
            assert all(outcome.phase.final for outcome in before[1])
            assert known is None or known in {outcome.id for outcome in before[1]}
            known = request
        assert len({outcome.id for outcome in outcomes}) == len(outcomes)
        assert sum(not outcome.phase.final for outcome in outcomes) <= 1
    seen.until(lambda: leads(seen))
    leader = leads(seen)
    [heir] = [each for each in replicas if each.name != leader]
    [led] = [each for each in replicas if each.name == leader]
    assert led.end() == 0
    seen.until(lambda: leads(seen) == heir.name)
    assert heir.end() == 0
    assert leads(seen) == ""


def test_execution_follows_real_pods(seen):
    """Up and down again, with pods that really start and stop."""
    seen.submit("sleepy")
    for before, size in ((), 5), ((Phase.DONE,), 3):
        training = threading.Thread(target=trains, args=(seen, "sleepy", *before, Phase.READY))
        training.start()
        now = time.time()
        asked = {"id": f"to-{size}", "from_workers": 2 if size == 5 else 5, "to_workers": size, "reason": "Person"}
        asked |= {"explanation": "because", "policy": "person", "by": "ada", "at": now, "expires": now + 600}
        request = names.REQUEST.replace("/", "~1")
        patch = [{"op": "add", "path": f"/metadata/annotations/{request}", "value": json.dumps(asked)}]
        seen.cluster.patch("Job", "sleepy", "ml", patch)
        outcome = execute(seen.cluster, "ml", "sleepy", holder="cli:me")
        training.join()
        assert (outcome.phase, outcome.to_workers) == (Phase.DONE, size)
        seen.until(lambda size=size: seen.running("sleepy") == size + 1)


def test_a_coordinator_that_is_killed_comes_back_and_goes_on(seen):
    """It publishes progress, keeps what was known of changes, has an autoscaler beside the Job, and ends well.

    That autoscaler decides as the Policies of the namespace say.
    """
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.POLICIES_CONFIG, "namespace": "ml"}}
    seen.cluster.create({**config, "data": {"policies.yaml": POLICY}})
    seen.submit("coordinated", coordinated=True)
    seen.until(lambda: pod_ip(seen, "coordinated-coordinator-0"))
    first = MembershipChange(step=3, from_workers=1, to_workers=2, at=time.time(), pause_s=0.1)
    report(seen, progress(5, first))
    seen.until(lambda: seen.annotation("coordinated", names.PROGRESS))
    seen.until(lambda: seen.annotation("coordinated", names.REQUEST))
    assert parse(ResizeRequest, seen.annotation("coordinated", names.REQUEST)).policy == "hpa"
    [process] = coordinators()
    os.kill(process.pid, signal.SIGKILL)
    gone(process.pid)
    report(seen, progress(9))
    seen.until(lambda: parse(Progress, seen.annotation("coordinated", names.PROGRESS)).step == 9)
    assert parse(Progress, seen.annotation("coordinated", names.PROGRESS)).changes == (first,)
    [process] = coordinators()
    process.send_signal(signal.SIGTERM)
    seen.until(lambda: ended(seen, "coordinated-coordinator-0") == 0)


def test_a_coordinator_without_its_pod_says_what_is_missing():
    """Started by hand it ends at once: wrong use."""
    command = [sys.executable, "-m", "kfp_volcano.elastic.autoscaler.coordinator"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ended.returncode == 2
    assert "not set: KFP_VOLCANO_JOB and KFP_VOLCANO_POD_IP" in ended.stderr


def gang() -> Any:
    container = {"name": "main", "image": "x", "command": ["sleep", "600"], "resources": {"limits": {names.GPU: "1"}}}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    task = {"name": "main", "replicas": 4, "minAvailable": 4, "template": template}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "big", "namespace": "ml"},
        "spec": {"queue": "research", "minAvailable": 4, "schedulerName": "volcano", "tasks": [task]},
    }


def progress(step: int, *changes: MembershipChange) -> Progress:
    return Progress(
        step=step,
        total_steps=99,
        samples=step,
        epoch=0,
        throughput=1.0,
        workers=2,
        batch=1,
        lr=0.1,
        at=time.time(),
        changes=changes,
    )


def pod(seen: Seen, name: str) -> Any:
    return next((pod for pod in seen.informer.objects("Pod") if pod["metadata"]["name"] == name), {"status": {}})


def pod_ip(seen: Seen, name: str) -> str | None:
    return pod(seen, name)["status"].get("podIP")


def ended(seen: Seen, name: str) -> int | None:
    """The exit code with which the pod's container ended last."""
    [status] = pod(seen, name)["status"]["containerStatuses"]
    states = [*(status.get("state") or {}).items(), *(status.get("lastState") or {}).items()]
    return next((state["exitCode"] for kind, state in states if kind == "terminated"), None)


def report(seen: Seen, news: Progress) -> None:
    """Send progress as workers do, as soon as somebody listens."""
    url = f"http://{pod_ip(seen, 'coordinated-coordinator-0')}:{names.PROGRESS_PORT}/progress"
    deadline = time.monotonic() + PATIENCE_S
    while True:
        request = urllib.request.Request(url, dump(news).encode(), method="POST")
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)  # between two attempts to connect; nothing tells when a port opens
        else:
            return


def coordinators() -> list[psutil.Process]:
    wanted = "kfp_volcano.elastic.autoscaler.coordinator"
    ours = psutil.Process().children(recursive=True)
    return [each for each in ours if wanted in each.cmdline() and each.status() != psutil.STATUS_ZOMBIE]
