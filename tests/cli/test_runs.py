# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apiserver.faults import Refuse
from kfpapi.server import KfpApi

PIPELINE = """
from kfp import dsl

@dsl.component(base_image="python:3.11")
def work(epochs: int): ...

@dsl.pipeline(name="small")
def small(epochs: int = 1):
    work(epochs=epochs)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(name="start")
def _start(tmp_path: Path, api: KfpApi) -> Iterator[Start]:
    """Start `kfp-volcano submit` with a pipeline and options."""
    (tmp_path / "small.py").write_text(PIPELINE)
    started = []

    def start(*options: str, host: str | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "kfp_volcano", "submit", str(tmp_path / "small.py")]
        environment = {**os.environ, "HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen(
            [*command, "--host", host or api.url, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def until(api: KfpApi, what: Callable[[], bool]) -> None:
    """Wait for what the other process does."""
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, [seen.path for seen in api.seen]
        time.sleep(0.02)  # it is another program: there is nothing to wait on


def looked_at(api: KfpApi) -> bool:
    """Whether the run is being followed."""
    return sum("/runs/" in seen.path for seen in api.seen) >= 1


@pytest.mark.parametrize(("last", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELED", 4)])
def test_the_exit_code_is_how_the_run_ended(start: Start, api: KfpApi, last: str, code: int):
    """The link is all of standard output; what happens is told on standard error."""
    api.backend.plot.states = [(0, "RUNNING"), (11, last)]
    api.backend.plot.tasks = {"work": [(0, "RUNNING"), (11, last)]}
    out, err = (process := start("--param", "epochs=3")).communicate(timeout=60)
    (run,) = api.backend.rows["runs"]
    assert process.returncode == code, err
    assert out == f"{api.url}/#/runs/details/{run}\n"
    assert f"run: {last}" in err
    if code == 1:
        assert "failed: work" in err


def test_detached_it_ends_at_once(start: Start, api: KfpApi):
    """The run is made and left."""
    out, _ = (process := start("--detach")).communicate(timeout=60)
    assert process.returncode == 0
    assert "/#/runs/details/" in out
    assert not looked_at(api)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_terminates_the_run_and_waits_for_its_end(start: Start, api: KfpApi, number: signal.Signals):
    """Nothing goes on that this command started."""
    api.backend.plot.states = [(0, "RUNNING")]
    process = start()
    until(api, lambda: looked_at(api))
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert list(api.backend.terminated) == list(api.backend.rows["runs"])
    assert "run: FAILED" in err


def test_interrupted_with_keep_it_leaves_the_run(start: Start, api: KfpApi):
    """Only the following ends."""
    api.backend.plot.states = [(0, "RUNNING")]
    process = start("--keep")
    until(api, lambda: looked_at(api))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "goes on" in err
    assert api.backend.terminated == {}


def test_a_backend_that_cannot_be_reached_or_refuses_is_3_and_wrong_input_2(start: Start, api: KfpApi):
    """Each with a message and without a traceback."""
    api.fault = lambda _: Refuse(403, "User 'ada' is not authorized")
    refused, wrong, nowhere = start(), start("--param", "epoch=3"), start(host="ftp://nowhere")
    for process, code, word in (
        (refused, 3, "not authorized"),
        (wrong, 2, "no such parameter"),
        (nowhere, 2, "no URL"),
    ):
        _, err = process.communicate(timeout=60)
        assert (process.returncode, word in err, "Traceback" in err) == (code, True, False), err
