# SPDX-License-Identifier: Apache-2.0
"""Real workers on a network that is cut in two: one side at most trains, and they come together again."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from live.network import Namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kfp_volcano.elastic.ledger import Audit
    from live.job import Job

_UNDER_WAY_S = 2.0
"""A step that was being summed when the network was cut may still count."""


@pytest.fixture
def network() -> Iterator[Namespaces]:
    """One that can be cut."""
    if not Namespaces.available():
        pytest.skip("network namespaces and iptables need root")
    network = Namespaces()
    yield network
    network.heal()


def commits_of(job: Job, *pods: str) -> list[float]:
    """When these pods committed something."""
    found = []
    for pod in pods:
        for path in (job.folder / "ledger").glob(f"{pod}-*.jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines() if '"commit"' in line]
            found += [line["time"] for line in lines]
    return sorted(found)


def assert_exact(audit: Audit, alone: Audit) -> None:
    """Every sample once, and the same batches."""
    assert audit.problems == ()
    assert (audit.duplicates, audit.missing) == (0, 0)
    assert audit.batches_sha256 == alone.batches_sha256


@pytest.mark.slow
def test_the_side_without_the_lighthouse_rests(
    make_job: Callable[..., Job], alone: Callable[[int], Audit], network: Namespaces
) -> None:
    """Half of the workers are cut off from all else: they commit nothing, and take part again when they can."""
    job = make_job(epochs=80, pace=0.03, network=network)
    pods = ["w-0", "w-1", "w-2", "w-3"]
    for pod in pods:
        job.start(pod)
    job.wait_for_steps(10, world=4)
    network.cut([job.index("w-0"), job.index("w-1")], [1, job.index("w-2"), job.index("w-3")])
    cut_at = time.time()
    job.wait_for_steps(60, world=2)
    network.heal()
    healed_at = time.time()
    job.wait_for_steps(10, world=4)
    assert [job.exit_code(pod) for pod in pods] == [0] * 4
    assert not [at for at in commits_of(job, "w-0", "w-1") if cut_at + _UNDER_WAY_S < at < healed_at]
    assert_exact(job.audit(), alone(80))


@pytest.mark.slow
def test_workers_cut_off_together_leave_the_training_to_others(
    make_job: Callable[..., Job], alone: Callable[[int], Audit], network: Namespaces
) -> None:
    """A group that can sum among itself, but not ask the lighthouse, rests while a newcomer trains on its side."""
    job = make_job(epochs=80, pace=0.3, network=network)
    for pod in ("w-0", "w-1"):
        job.start(pod)
    job.wait_for_steps(10, world=2)
    network.cut([job.index("w-0"), job.index("w-1")], [1, job.index("w-2")])
    cut_at = time.time()
    job.start("w-2")
    job.wait(lambda _: len(commits_of(job, "w-2")) >= 10)
    healed_at = time.time()
    assert not [at for at in commits_of(job, "w-0", "w-1") if cut_at + _UNDER_WAY_S < at < healed_at]
    network.heal()
    job.wait_for_steps(5, world=3)
    for pod in ("w-0", "w-1", "w-2"):
        job.signal(pod, signal.SIGTERM)
    for pod in ("w-0", "w-1", "w-2"):
        job.exit_code(pod)
    newest = max((job.folder / "checkpoints").glob("step-*/manifest.json"))
    about = json.loads(newest.read_text())
    audit = job.audit(newest)
    assert audit.problems == ()
    assert audit.duplicates == 0
    assert audit.missing == about["size"] * about["epochs"] - about["samples"]


@pytest.mark.slow
def test_a_coordinator_lost_in_a_cut_network_leaves_no_side_training(
    make_job: Callable[..., Job], alone: Callable[[int], Audit], network: Namespaces
) -> None:
    """Without a lighthouse neither side commits; with one again the side that has it does; healed, both."""
    job = make_job(epochs=80, pace=0.03, network=network)
    pods = ["w-0", "w-1", "w-2", "w-3"]
    for pod in pods:
        job.start(pod)
    job.wait_for_steps(10, world=4)
    network.cut([job.index("w-0"), job.index("w-1")], [1, job.index("w-2"), job.index("w-3")])
    job.kill("coordinator")
    lost_at = time.time()
    time.sleep(2 * _UNDER_WAY_S)  # nothing is to happen, so there is nothing to wait for
    back_at = time.time()
    job.start_coordinator()
    assert not [at for at in commits_of(job, *pods) if lost_at + _UNDER_WAY_S < at < back_at]
    job.wait_for_steps(10, world=2)
    network.heal()
    job.wait_for_steps(10, world=4)
    assert [job.exit_code(pod) for pod in pods] == [0] * 4
    assert_exact(job.audit(), alone(80))


@pytest.mark.slow
def test_workers_all_cut_off_from_their_coordinator_train_on_once_they_hear_it(
    make_job: Callable[..., Job], alone: Callable[[int], Audit], network: Namespaces
) -> None:
    """Whatever was under way when nobody heard the coordinator any more, all come back, and soon, time after time."""
    job = make_job(epochs=120, pace=0.03, network=network)
    pods = ["w-0", "w-1", "w-2"]
    for pod in pods:
        job.start(pod)
    job.wait_for_steps(10, world=3)
    for cut_s in (0.5, 2.0, 6.0):  # before hearts have expired, after, and after a quorum was given up
        network.cut([job.index(pod) for pod in pods], [1])
        time.sleep(cut_s)
        network.heal()
        job.wait_for_steps(10, world=3)
    assert [job.exit_code(pod) for pod in pods] == [0] * 3
    assert_exact(job.audit(), alone(120))
