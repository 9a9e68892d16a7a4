# SPDX-License-Identifier: Apache-2.0
"""How fast the autoscaler answers changes of clusters of three sizes, and what that costs.

The cluster is generated (`scale/generated.py`) into the embedded cluster's store; the autoscaler is a process of its
own beside it that leads all queues, as the shared one does. Latency is from a change in the store to the first request
that it leads to, by one clock; beside it stands the store's own time: a program that does nothing but watch, read the
Job and write an annotation, over the same connection. CPU, memory and calls are those of the autoscaler's process,
without the store's.

Changes that lead to requests are gangs of a queue that only fit if its Jobs shrink, and a batch Job's end, which leaves
the queue idle enough for its Jobs to grow; others change pods' conditions, and Jobs' progress.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import platform
import queue as queues
import random
import statistics
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import goodput
from scale.generated import (
    NAMESPACE,
    batch_pods,
    elastic_names,
    gang,
    generate,
    group_of,
    queue_names,
)
from scale.served import ServedCluster, serving

from kfp_volcano.schemas.names import PROGRESS, REQUEST, SYSTEM_NAMESPACE
from kfp_volcano.schemas.records import Progress, dump
from kfp_volcano.volcano.cluster.annotations import annotation, annotation_patch
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.model import admission

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from kfp_volcano.volcano.model.objects import Transition

SIZES = (100, 1_000, 10_000)
POLICIES = ("threshold", "hpa")
"""Those that are measured on clusters; what takes time with `goodput` is the decision, which is measured by itself."""
ANSWER_S = 20.0
"""How long an answer is waited for."""
QUIET_S = 0.25
"""So long nothing is written before the next change is made."""


# The process that is measured.


def autoscaler(address: str, policy: str, orders: Connection) -> None:
    """Lead all queues, and answer what that has cost so far."""
    import kubernetes  # noqa: F401, PLC0415 - they count as memory
    import ray  # noqa: F401, PLC0415

    from kfp_volcano.elastic.autoscaler.fleet import Fleet  # noqa: PLC0415

    cluster = ServedCluster(address)
    chosen = _policy(policy)
    fleet = Fleet(
        cluster,  # type: ignore[arg-type] # the part of the port that is used
        queues=lambda index: index.queues.keys() - {"root"},
        policies=lambda _: chosen,
        identity="bench",
        home=SYSTEM_NAMESPACE,
    )

    def answer() -> None:
        while orders.recv() != "stop":
            orders.send((time.process_time(), _memory(), dict(cluster.calls), len(fleet.led)))
        fleet.stop()

    threading.Thread(target=answer, daemon=True).start()
    fleet.run()


def echo(address: str, orders: Connection) -> None:
    """The store's own time: write to a Job whatever is seen of a PodGroup."""
    cluster = ServedCluster(address)
    orders.send("ready")
    version = cluster.list("PodGroup")[1]
    while True:
        for event in cluster.watch("PodGroup", resource_version=version):
            version = event.resource_version
            if event.type == "ADDED":
                name = event.object["metadata"]["labels"]["job"]
                job = cluster.get("Job", name, NAMESPACE)
                cluster.patch("Job", name, NAMESPACE, annotation_patch(job, REQUEST, "{}"))


def _policy(name: str) -> Any:
    from kfp_volcano.elastic.policies.guards import Guarded  # noqa: PLC0415
    from kfp_volcano.elastic.policies.hpa.policy import Hpa  # noqa: PLC0415
    from kfp_volcano.elastic.policies.settings import ThresholdSettings, Up  # noqa: PLC0415
    from kfp_volcano.elastic.policies.threshold import Threshold  # noqa: PLC0415

    return Guarded(Hpa() if name == "hpa" else Threshold(settings=ThresholdSettings(up=Up(idle_share=0.2))))


def _memory() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))}


# The cluster, and what happens there.


@dataclass
class Cost:
    """What the autoscaler's process has used so far."""

    at: float
    cpu_s: float
    memory: dict[str, int]
    calls: dict[str, int]
    led: int

    def calls_since(self, before: Cost, *, leases: bool) -> int:
        """Calls between two moments, either those of Leases or all others."""
        return sum(
            count - before.calls.get(call, 0) for call, count in self.calls.items() if call.endswith(" Lease") == leases
        )


@contextmanager
def unchecked() -> Iterator[None]:
    """Without admission, which takes most of the time of a change of a Job: what is made here is as that leaves it."""
    with (
        mock.patch.object(admission, "admit_create", lambda manifest, _: manifest),
        mock.patch.object(admission, "admit_update", return_value=None),
    ):
        yield


class Ground:
    """A generated cluster, and its autoscaler."""

    def __init__(self, jobs: int, seed: int) -> None:
        self.store = Store(history=100_000)
        self.random = random.Random(seed)  # noqa: S311 - a benchmark's
        self.queues = queue_names(jobs)
        self.requests: queues.Queue[tuple[float, str]] = queues.Queue()
        self.last_write = 0.0
        with unchecked(), self.store.transaction() as (world, now):
            for each in generate(jobs):
                world.create(each, now)
            world.transitions.clear()
        self.store.listen(self._heard)
        gc.collect()
        gc.freeze()  # the store's process is not what is measured: it is not to stop for tenths of seconds

    def _heard(self, transition: Transition) -> None:
        old, new = transition.old, transition.new
        if transition.kind != "Lease":  # renewed all the time
            self.last_write = time.perf_counter()
        if old is None or new is None or new["kind"] != "Job":
            return
        if annotation(new, REQUEST) not in {None, annotation(old, REQUEST)}:
            self.requests.put((time.perf_counter(), new["spec"]["queue"]))

    def await_quiet(self) -> None:
        """Wait until nobody has written for a while."""
        while (left := self.last_write + QUIET_S - time.perf_counter()) > 0:
            time.sleep(left)
        with self.store.transaction() as (world, _):
            world.transitions.clear()

    def first_request(self, queue: str, began: float) -> float:
        """When the first request in a queue came, after a moment; seconds."""
        deadline = began + ANSWER_S
        while (left := deadline - time.perf_counter()) > 0:
            try:
                at, asked = self.requests.get(timeout=left)
            except queues.Empty:
                break
            if asked == queue and at >= began:
                return at - began
        raise SystemExit(f"a change of queue {queue} led to no request within {ANSWER_S:.0f} s")

    def forget_requests(self) -> None:
        """Those that came are not looked at."""
        while not self.requests.empty():
            self.requests.get_nowait()

    @contextmanager
    def restored(self, queue: str) -> Iterator[None]:
        """Afterwards the queue's Jobs are as they were, without a trace of requests."""
        names = elastic_names(queue)
        with self.store.transaction() as (world, _):
            before = {name: world.get("Job", (NAMESPACE, name)) for name in names}
        yield
        self.await_quiet()
        with unchecked(), self.store.transaction() as (world, _):
            for name, job in before.items():
                found = world.get("Job", (NAMESPACE, name))
                if found["spec"] != job["spec"] or found["metadata"].get("annotations") != job["metadata"].get(
                    "annotations"
                ):
                    metadata = {**found["metadata"], "annotations": job["metadata"]["annotations"]}
                    world.update({**found, "metadata": metadata, "spec": job["spec"]})
        self.await_quiet()
        self.forget_requests()

    def gang_comes(self, queue: str) -> float:
        """A gang that only fits if Jobs shrink. Returns how long the first request took, seconds."""
        name = f"gang-{self.random.randrange(10**9)}"
        with self.restored(queue):
            with self.store.transaction() as (world, now):
                began = time.perf_counter()
                for each in gang(queue, name):
                    world.create(each, now)
            took = self.first_request(queue, began)
            self.await_quiet()
            with self.store.transaction() as (world, now):
                world.remove("Job", (NAMESPACE, name), now)
                world.remove("PodGroup", (NAMESPACE, group_of(name)), now)
        return took

    def batch_ends(self, queue: str) -> float:
        """40 GPUs come free. Returns how long the first request took, seconds."""
        with self.restored(queue):
            with self.store.transaction() as (world, now):
                pods = [world.get("Pod", (NAMESPACE, name)) for name in batch_pods(queue)]
                job = world.get("Job", (NAMESPACE, f"{queue}-batch"))
                began = time.perf_counter()
                world.update({**job, "status": {"state": {"phase": "Completed"}}})
                for pod in pods:
                    world.remove("Pod", (NAMESPACE, pod["metadata"]["name"]), now)
            took = self.first_request(queue, began)
            self.await_quiet()
            with self.store.transaction() as (world, now):
                for pod in pods:
                    world.create(pod, now)
                world.update({**world.get("Job", (NAMESPACE, f"{queue}-batch")), "status": job["status"]})
        return took

    def churn(self, changes: int, per_s: float) -> None:
        """Changes that call for nothing, at a steady rate: of every four, three of pods and one of a Job's progress."""
        began = time.perf_counter()
        for number in range(changes):
            queue = self.random.choice(self.queues)
            name = self.random.choice(elastic_names(queue))
            if number % 4:
                self._condition(f"{name}-core-{number % 2}", number)
            else:
                self._progress(name, number)
            time.sleep(max(0.0, began + (number + 1) / per_s - time.perf_counter()))

    def _condition(self, pod: str, number: int) -> None:
        with self.store.transaction() as (world, _):
            found = world.get("Pod", (NAMESPACE, pod))
            conditions = [*found["status"]["conditions"][:1], {"type": "Benched", "status": str(number)}]
            world.update({**found, "status": {**found["status"], "conditions": conditions}})

    def _progress(self, job: str, number: int) -> None:
        progress = Progress(
            step=number,
            total_steps=1_000_000,
            samples=number * 256,
            epoch=0,
            throughput=512.0,
            workers=4,
            batch=256,
            lr=0.1,
            at=time.time(),
        )
        with self.store.transaction() as (world, _):
            found = world.get("Job", (NAMESPACE, job))
            annotations = {**found["metadata"]["annotations"], PROGRESS: dump(progress)}
            world.update({**found, "metadata": {**found["metadata"], "annotations": annotations}})


class Measured:
    """The autoscaler's process."""

    def __init__(self, address: str, policy: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._orders, theirs = context.Pipe()
        self._process = context.Process(target=autoscaler, args=(address, policy, theirs), daemon=True)
        self._process.start()

    def cost(self) -> Cost:
        """What it has used so far."""
        self._orders.send("cost")
        cpu_s, memory, calls, led = self._orders.recv()
        return Cost(time.perf_counter(), cpu_s, memory, calls, led)

    def await_leading(self, queues: int) -> Cost:
        """Wait until it leads all."""
        while (cost := self.cost()).led < queues:
            time.sleep(0.1)
        return cost

    def stop(self) -> None:
        """End it."""
        self._orders.send("stop")
        self._process.join(60.0)
        if self._process.is_alive():
            self._process.kill()


def own_time(ground: Ground, address: str, samples: int) -> list[float]:
    """How long the store takes to tell of a change and to take a request, seconds each."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=echo, args=(address, there), daemon=True)
    process.start()
    here.recv()
    time.sleep(1.0)
    took = []
    for number in range(samples):
        queue = ground.random.choice(ground.queues)
        name = f"echo-{number}"
        job = ground.random.choice(elastic_names(queue))
        with ground.restored(queue):
            _, group = gang(queue, name)
            began = time.perf_counter()
            ground.store.create({**group, "metadata": {**group["metadata"], "labels": {"job": job}}})
            took.append(ground.first_request(queue, began))
            ground.store.delete("PodGroup", group_of(name), NAMESPACE)
    process.kill()
    process.join()
    return took


def measure(ground: Ground, address: str, policy: str, case: str, arguments: argparse.Namespace) -> None:
    """One policy on one cluster."""
    measured = Measured(address, policy)
    started = time.perf_counter()
    ready = measured.await_leading(len(ground.queues))
    say(case, "start", ready.at - started, "s")
    ground.await_quiet()
    time.sleep(2.0)
    before = measured.cost()
    time.sleep(arguments.idle_s)
    idle = measured.cost()
    say(case, "idle_cpu", 1000 * (idle.cpu_s - before.cpu_s) / (idle.at - before.at), "ms/s")
    say(case, "lease_calls", idle.calls_since(before, leases=True) / (idle.at - before.at), "1/s")

    def beyond_idle_ms(until: Cost, since: Cost) -> float:
        rate = (idle.cpu_s - before.cpu_s) / (idle.at - before.at)
        return 1000 * (until.cpu_s - since.cpu_s - rate * (until.at - since.at))

    since = measured.cost()
    ground.churn(arguments.churn, arguments.churn_per_s)
    ground.await_quiet()
    until = measured.cost()
    say(case, "churn_cpu_per_change", beyond_idle_ms(until, since) / arguments.churn, "ms")
    say(case, "churn_calls_per_change", until.calls_since(since, leases=False) / arguments.churn, "1")

    took: list[float] = []
    ground.forget_requests()
    since = measured.cost()
    written = ground.store.version
    requests = 0
    for number in range(arguments.samples):
        queue = ground.random.choice(ground.queues)
        took.append(ground.gang_comes(queue) if number % 2 else ground.batch_ends(queue))
    until = measured.cost()
    requests = until.calls.get("patch Job", 0) - since.calls.get("patch Job", 0)
    changes = ground.store.version - written - requests
    print(f"{case}: samples in ms: {[round(1000 * each, 1) for each in took]}", file=sys.stderr)
    say(case, "request_p50", 1000 * statistics.median(took), "ms")
    say(case, "request_p99", 1000 * statistics.quantiles(took, n=100, method="inclusive")[98], "ms", limit=50)
    say(case, "cpu_per_change", beyond_idle_ms(until, since) / changes, "ms")
    say(case, "calls_per_change", until.calls_since(since, leases=False) / changes, "1")
    say(case, "calls_per_request", until.calls_since(since, leases=False) / requests, "1")
    say(case, "memory", until.memory["VmRSS"] / 1024, "MiB", limit=400)
    say(case, "memory_peak", until.memory["VmHWM"] / 1024, "MiB")
    measured.stop()


def say(case: str, metric: str, value: float, unit: str, **more: Any) -> None:
    """One figure."""
    line = {"bench": "autoscaler", "case": case, "metric": metric, "value": round(value, 3), "unit": unit, **more}
    print(json.dumps(line), flush=True)


def main() -> None:
    """Print one JSON object a line; samples and the machine to standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=SIZES)
    policies = (*POLICIES, "goodput")
    parser.add_argument("--policies", nargs="+", default=policies, choices=policies)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--churn", type=int, default=2000)
    parser.add_argument("--churn-per-s", type=float, default=200.0)
    parser.add_argument("--idle-s", type=float, default=30.0)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} processors, {platform.platform()}, Python {platform.python_version()}", file=sys.stderr)
    if "goodput" in arguments.policies:
        for line in goodput.cases():
            print(json.dumps(line), flush=True)
    for jobs in arguments.jobs if set(POLICIES) & set(arguments.policies) else ():
        ground = Ground(jobs, seed=jobs)
        with tempfile.TemporaryDirectory() as folder, serving(ground.store, address := f"{folder}/store"):
            own = own_time(ground, address, min(50, arguments.samples))
            say(f"{jobs} jobs", "store_p50", 1000 * statistics.median(own), "ms")
            say(f"{jobs} jobs", "store_p99", 1000 * statistics.quantiles(own, n=100, method="inclusive")[98], "ms")
            for policy in (each for each in arguments.policies if each in POLICIES):
                measure(ground, address, policy, f"{jobs} jobs, {policy}", arguments)


if __name__ == "__main__":
    main()
