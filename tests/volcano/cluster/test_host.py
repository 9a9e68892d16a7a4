# SPDX-License-Identifier: Apache-2.0
"""A host ends with whoever started it, and takes all its pods along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from kfp_volcano.errors import UnavailableError
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.cluster.host import start_host, tried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START_S = 120.0
END_S = 30.0
"""Within this time nothing is left, however the starter has ended; two seconds where the machine is idle."""

STARTER = """
import signal, sys, time
from pathlib import Path
from kfp_volcano.volcano.cluster.host import RemoteCluster, start_host

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in its background
cluster = RemoteCluster(start_host(Path(sys.argv[1])))
stubborn = "trap '' TERM; setsid sleep 600 & while true; do sleep 1; done"
pod = {"containers": [{"name": "main", "image": "unused", "command": ["sh", "-c", stubborn],
                       "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
cluster.create({
    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "job"},
    "spec": {"queue": "research", "tasks": [{"name": "core", "replicas": 3, "template": {"spec": pod}}]},
})
_, version = cluster.list("Job")
while cluster.get("Job", "job").get("status", {}).get("running") != 3:
    next(iter(cluster.watch("Job", resource_version=version)))
print("running", flush=True)
if sys.argv[2] == "raise":
    raise RuntimeError("as expected")
while True:
    time.sleep(0.1)  # not signal.pause(): a signal that comes just before it would be slept over
"""


@pytest.fixture
def marker(tmp_path: Path, marked: Callable[[str], list[psutil.Process]]) -> Iterator[str]:
    """A value of the environment of everything that the test starts; whatever a failure leaves is killed."""
    yield str(tmp_path)
    for process in marked(str(tmp_path)):
        process.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, "raise"])
def test_nothing_outlives_the_starter(
    tmp_path: Path, marker: str, marked: Callable[[str], list[psutil.Process]], how: signal.Signals | str
) -> None:
    """After kill -9, Ctrl-C or an error of the starting process, all pods and Ray's processes end soon."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path), str(how)],
        env={**os.environ, "MARKER": marker},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"running\n"
        if isinstance(how, signal.Signals):  # a pod runs before its shell has come to its first line
            while [process.name() for process in marked(marker)].count("sleep") < 3:
                with suppress(subprocess.TimeoutExpired):
                    pytest.fail(f"it ended by itself with {starter.wait(0.1)}")
        # Again and again: Python swallows an interrupt that comes while it collects garbage.
        for _ in range(round(START_S)):
            if isinstance(how, signal.Signals):
                starter.send_signal(how)
            with suppress(subprocess.TimeoutExpired):
                starter.wait(2)
                break
        else:
            starter.kill()
            pytest.fail("it did not end")
    _, left = psutil.wait_procs(marked(marker), timeout=END_S)
    assert not [process.name() for process in left]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "garbage"])
def test_where_nobody_answers_the_cluster_is_unavailable(address: str) -> None:
    """A host that is not there, or an address that is none, is told at once."""
    with pytest.raises(UnavailableError, match=address):
        connect(f"embedded:{address}")


def test_without_a_target_the_way_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no cluster is named, or one that is not understood, the error says how to run on this machine."""
    monkeypatch.delenv("KFP_VOLCANO_CLUSTER", raising=False)
    for target in (None, "nowhere"):
        with pytest.raises(UnavailableError, match="--local"):
            connect(target)


def test_a_ray_that_does_not_start_is_tried_again_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be too slow once on a busy machine; in the end the error says so, and Ray's settings are as before."""
    before, tries = dict(os.environ), []

    def init(**_options: object) -> None:
        tries.append(os.environ["RAY_AUTH_TOKEN"])
        raise Exception("timed out during startup")  # noqa: TRY002 - as Ray does

    monkeypatch.setattr("ray.init", init)
    with pytest.raises(UnavailableError, match="did not start: timed out"):
        start_host(tmp_path)
    assert len(set(tries)) == 3
    assert dict(os.environ) == before


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_ray_that_is_slow_to_start_is_started_again(failures: int) -> None:
    """On a busy machine Ray gives up on its own node; a third time is tried, and what starts then counts."""
    outcomes: list[Exception | str] = [*[UnavailableError("Ray did not start")] * failures, "an address"]

    def start() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert tried(start) == "an address"
    assert not outcomes


def test_a_ray_that_never_starts_is_given_up() -> None:
    """After three times it is said as it was; what is no matter of time is said at once."""
    began: list[str] = []

    def start(error: Exception) -> None:
        began.append("")
        raise error

    with pytest.raises(UnavailableError, match="did not start"):
        tried(lambda: start(UnavailableError("Ray did not start")))
    assert len(began) == 3
    with pytest.raises(ValueError, match="no such option"):
        tried(lambda: start(ValueError("no such option")))
    assert len(began) == 4
