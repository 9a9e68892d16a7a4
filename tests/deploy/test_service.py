# SPDX-License-Identifier: Apache-2.0
"""On a real API server, as the account of `deploy/`: the autoscaler as a service, its replicas, and what it leaves."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from apiserver.hands import Hands
from apiserver.server import ApiServer
from kfp_volcano.elastic.autoscaler.contracts import request_of
from kfp_volcano.elastic.autoscaler.leading import LEAD_S, lease_name
from kfp_volcano.elastic.autoscaler.lease import term_of
from kfp_volcano.elastic.autoscaler.telling.telemetry import PREFIX
from kfp_volcano.schemas.names import HOLD, SYSTEM_NAMESPACE
from kfp_volcano.schemas.records import Hold, dump
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.annotations import update_annotation
from kfp_volcano.volcano.cluster.base import Manifest
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import from_kubeconfig
from kfp_volcano.volcano.manifests.job import job_manifest
from kfp_volcano.volcano.model.objects import parse_time

pytestmark = pytest.mark.cluster

HOME, QUEUE = "kubeflow", "served"
PATIENCE_S = 120.0
SPEC = {
    "apiVersion": "kfp-volcano/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "served", "namespace": HOME},
    "spec": {
        "framework": "pytorch",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "queue": QUEUE,
        "roles": {"worker": {"replicas": {"min": 1, "max": 3, "initial": 3}, "resources": {"gpu": 1}}},
        "elasticity": {"strategy": "restart"},
    },
}


class Replica:
    """`kfp-volcano autoscaler run`, with all that it starts."""

    def __init__(self, name: str, kubeconfig: Path, folder: Path) -> None:
        self._log = folder / f"{name}.log"
        command = [sys.executable, "-m", "kfp_volcano", "autoscaler", "run", "--kubeconfig", str(kubeconfig)]
        command += ["--queue", QUEUE, "--identity", name, "--metrics-port", "0", "--log-format", "json"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def says(self) -> str:
        return self._log.read_text()

    def ask(self, path: str) -> str:
        [port] = re.findall(r"metrics at port (\d+)", self.says())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def leads(self) -> float | None:
        """What its metrics say."""
        families = text_string_to_metric_families(self.ask("/metrics"))
        samples = {each.name: each for family in families for each in family.samples}
        found = samples.get(f"{PREFIX}_queue_leading")
        return found and found.value

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class View:
    """The cluster as its administrator sees it: changes are waited for."""

    def __init__(self, server: ApiServer) -> None:
        self.cluster = KubernetesCluster(from_kubeconfig(server.kubeconfig("viewer", "system:masters")))
        self.informer = Informer(self.cluster, ("Lease", "Job", "Event"))
        self.informer.start()

    def lease(self) -> Manifest:
        found = (each for each in self.informer.objects("Lease") if each["metadata"]["name"] == lease_name(QUEUE))
        return next(found, {"spec": {}})

    def leader(self) -> str:
        return term_of(self.lease()).holder

    def until(self, condition: Callable[[], object], replica: Replica) -> None:
        deadline, version = time.monotonic() + PATIENCE_S, 0
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, replica.says()
            assert replica.process.poll() is None, replica.says()
            version = self.informer.wait(version, timeout_s=min(left, 1.0))


@pytest.fixture(name="view")
def _view(deployed: ApiServer) -> Iterator[View]:
    view = View(deployed)
    yield view
    view.informer.stop()


@pytest.fixture(name="replica")
def _replica(deployed: ApiServer, tmp_path: Path) -> Iterator[Callable[[str], Replica]]:
    kubeconfig = deployed.token_kubeconfig("kfp-volcano-autoscaler", SYSTEM_NAMESPACE)
    started: list[Replica] = []

    def start(name: str) -> Replica:
        started.append(Replica(name, kubeconfig, tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture(name="job")
def _job(deployed: ApiServer, view: View) -> Iterator[Manifest]:
    hands = Hands(deployed, HOME)
    hands.open_queue(QUEUE)
    spec, run_id = training_job(SPEC), str(uuid.uuid4())
    job = view.cluster.create(job_manifest(spec, name=f"served-{run_id[:8]}", run_id=run_id, step="submit", workers=3))
    hands.phase(job["metadata"]["name"], "Running")
    yield job
    view.cluster.delete("Job", job["metadata"]["name"], HOME)
    hands.close_queue(QUEUE)


def test_replicas_hand_over_and_leave_nothing(view: View, job: Manifest, replica: Callable[[str], Replica]) -> None:
    """One leads and works, the other stands by; killed, all its processes go, and the other leads; stopped, nobody."""
    one = replica("one")
    view.until(lambda: view.leader() == "one/0", one)
    view.until(lambda: "actor 0 is at work" in one.says(), one)
    assert one.leads() == 1
    assert one.ask("/readyz") == one.ask("/healthz") == "ok\n"
    two = replica("two")
    view.until(lambda: "actor 0 is at work" in two.says(), two)
    assert (two.leads(), two.ask("/readyz")) == (0, "ok\n")

    name = job["metadata"]["name"]
    hold = Hold(until=time.time() + 600, by="ada", override=2)
    update_annotation(view.cluster, "Job", name, HOME, HOLD, lambda _: dump(hold))
    view.until(lambda: request_of(view.cluster.get("Job", name, HOME)), one)
    about = lambda: [each for each in view.informer.objects("Event") if each["involvedObject"].get("name") == name]  # noqa: E731
    view.until(lambda: "ResizeRequested" in {each["reason"] for each in about()}, one)
    assert {each["involvedObject"]["uid"] for each in about()} == {job["metadata"]["uid"]}

    family = one.family()
    assert {"raylet", "gcs_server"} <= {each.name() for each in family}
    one.kill()
    renewed = parse_time(view.lease()["spec"]["renewTime"])
    view.until(lambda: view.leader() == "two/0", two)
    assert parse_time(view.lease()["spec"]["acquireTime"]) >= renewed + LEAD_S
    assert psutil.wait_procs(family, timeout=PATIENCE_S)[1] == []

    family = two.family()
    two.process.terminate()
    assert two.process.wait(PATIENCE_S) == 0, two.says()
    assert not term_of(view.cluster.get("Lease", lease_name(QUEUE), SYSTEM_NAMESPACE)).holder
    assert psutil.wait_procs(family, timeout=PATIENCE_S)[1] == []


def test_what_cannot_work_ends_at_once(deployed: ApiServer, tmp_path: Path) -> None:
    """Wrong Policies, and a port that is taken: exit code 2 and a message, no traceback, no Ray."""
    kubeconfig = deployed.kubeconfig("ender", "system:masters")
    run = [
        sys.executable,
        "-m",
        "kfp_volcano",
        "autoscaler",
        "run",
        "--kubeconfig",
        str(kubeconfig),
        "--all-queues",
    ]
    wrong = tmp_path / "policies.yaml"
    wrong.write_text("kind: Policy\n")
    port = deployed.url.rpartition(":")[2]
    for options, told in (["--policies", str(wrong)], "policies.yaml"), (["--metrics-port", port], "cannot be served"):
        ended = subprocess.run([*run, *options], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (ended.returncode, "Traceback" in ended.stderr) == (2, False), ended.stderr
        assert told in ended.stderr
