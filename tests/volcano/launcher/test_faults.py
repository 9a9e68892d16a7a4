# SPDX-License-Identifier: Apache-2.0
"""What `faults` promises, kept by real pods on the embedded cluster, mostly with nobody who follows them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.errors import JobFailedError, NotFoundError
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.follow import follow
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.submit import submit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 60.0
FOREVER = "sleep 600 >/dev/null & wait"  # a shell loses signals that come while it starts a program
FIXED = {"strategy": "fixed", "grace": "20s"}
ELASTIC = {"strategy": "restart", "grace": "20s"}
BOTH = pytest.mark.parametrize("elasticity", [ELASTIC, FIXED], ids=["elastic", "fixed"])


class Training:
    """A Job of one worker."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.ref = JobRef("", "")

    def fill(self) -> None:
        """Have another team's Job hold all GPUs."""
        container = {"name": "main", "image": "any", "command": ["sleep", "600"]}
        container["resources"] = {"limits": {"nvidia.com/gpu": "4"}}
        task = {"name": "main", "replicas": 2, "template": {"spec": {"containers": [container]}}}
        job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"queue": "default", "tasks": [task]}}
        self.cluster.create({**job, "metadata": {"name": "other", "namespace": "theirs"}})
        while len([pod for pod in self.cluster.list("Pod")[0] if pod["spec"].get("nodeName")]) < 2:
            version = self.cluster.list("Pod")[1]
            next(iter(self.cluster.watch("Pod", resource_version=version, timeout_s=1)))

    def start(self, script: str, elasticity: Any, **faults: Any) -> None:
        """Submit it."""
        spec = {
            "framework": "custom",
            "image": "any",
            "command": ["sh", "-c", script],
            "queue": "research",
            "roles": {"worker": {"replicas": 1, "resources": {"gpu": 1}}},
            "elasticity": elasticity,
            "checkpoint": {"volume": "files"},
            "faults": faults,
        }
        job = {
            "apiVersion": "kfp-volcano/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "faulty", "namespace": "ml"},
            "spec": spec,
        }
        made = submit(self.cluster, training_job(job), run_id="run", step="submit", now=time.time())
        self.ref = JobRef.of(made)

    def until(self, kind: str, condition: Callable[[list[Any]], object]) -> list[Any]:
        """The objects of a kind once they are so."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found, version = self.cluster.list(kind, "ml")
            if condition(found):
                return found
            assert time.monotonic() < deadline, found
            next(iter(self.cluster.watch(kind, "ml", resource_version=version, timeout_s=PATIENCE_S)))

    def ended(self) -> str:
        """The Job's phase once it has ended."""
        ends = {"Completed", "Failed", "Terminated", "Aborted"}
        (job,) = self.until("Job", lambda found: found[0].get("status", {}).get("state", {}).get("phase") in ends)
        return str(job["status"]["state"]["phase"])

    def lines(self) -> list[str]:
        """What was written to the file `lines` of the volume."""
        folder = self.cluster.volume("ml", "files")
        assert folder
        file = folder / "lines"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    cluster = EmbeddedCluster(tmp_path)
    yield Training(cluster)
    cluster.shutdown(grace_s=0)


def note(word: str) -> str:
    return f"echo {word} >> /kfp-volcano/volume/lines"


CLEANUP = {"command": ["sh", "-c", note("cleaned")], "timeout": "10s"}


@BOTH
def test_the_clean_up_runs_after_a_training_that_succeeded(training: Training, elasticity: Any) -> None:
    """Once, after it."""
    training.start(note("trained"), elasticity, cleanup=CLEANUP)
    assert training.ended() == "Completed"
    assert training.lines() == ["trained", "cleaned"]


def test_the_clean_up_runs_after_each_failure(training: Training) -> None:
    """The program is started again after it, until it has failed too often."""
    training.start(f"{note('failed')}; exit 3", FIXED, cleanup=CLEANUP, retries=1)
    assert training.ended() == "Terminated"
    assert training.lines()[:2] == ["failed", "cleaned"]
    assert training.lines().count("cleaned") == training.lines().count("failed")


@pytest.mark.parametrize(
    ("trap", "grace", "before"),
    [(f"trap '{note('saved')}; exit 5' TERM", "20s", ["begun", "saved"]), ("trap '' TERM", "1s", ["begun"])],
    ids=["ends itself", "has to be killed"],
)
def test_the_clean_up_runs_when_its_pod_is_taken_away(
    training: Training, trap: str, grace: str, before: list[str]
) -> None:
    """After the program has ended in its grace, or was killed then."""
    begun = f"{trap}; {note('begun')}; touch /kfp-volcano/volume/begun"
    training.start(f"{begun}; {FOREVER}", {**FIXED, "grace": grace}, cleanup=CLEANUP, evicted="fail")
    (pod,) = training.until("Pod", lambda found: found and found[0]["status"].get("phase") == "Running")
    folder = training.cluster.volume("ml", "files")
    assert folder
    while not (folder / "begun").exists():
        time.sleep(0.02)  # the pod is another program, and the mark a file: there is nothing to wait on
    training.cluster.delete("Pod", pod["metadata"]["name"], "ml")
    assert training.ended() == "Terminated"
    assert training.lines() == [*before, "cleaned"]


@pytest.mark.parametrize(("faults", "ends"), [({"failed": "fail"}, "Terminated"), ({"evicted": "replace"}, "Failed")])
def test_pods_keep_the_time_limit_themselves_where_their_failure_ends_the_job(
    training: Training, faults: Any, ends: str
) -> None:
    """Nobody follows, and nobody watches the queue."""
    training.start(f"trap 'exit 0' TERM; {FOREVER}", FIXED, timeout="1s", **faults)
    assert training.ended() == ends


@BOTH
def test_whoever_follows_a_job_ends_it_when_its_time_is_over(training: Training, elasticity: Any) -> None:
    """The step says why, and the Job stays for its report."""
    training.start(FOREVER, elasticity, timeout="2s")
    with pytest.raises(JobFailedError, match=r"faults\.timeout, 2s"):
        follow(
            training.cluster,
            training.ref,
            holder="train:run",
            heir="run:run",
            last=True,
            clock=time.time,
            say=lambda _: None,
        )
    assert training.ended() == "Terminated"


@BOTH
def test_a_gang_whose_pods_wait_too_long_is_ended(training: Training, elasticity: Any) -> None:
    """By Volcano: nobody follows."""
    training.fill()
    training.start("true", elasticity, pending={"after": "1s"})
    training.until("Pod", lambda found: found)
    assert training.ended() == "Terminated"


@BOTH
def test_a_finished_job_goes_when_its_time_is_over(training: Training, elasticity: Any) -> None:
    """By Volcano: nobody follows."""
    training.start("true", elasticity, keepFor="1s")
    training.until("Job", lambda found: not found)
    with pytest.raises(NotFoundError):
        training.ref.read(training.cluster)
