# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest

from apiserver.faults import Refuse
from kfp_volcano.errors import NotFoundError, UnavailableError
from kfp_volcano.pipelines.backend.runs import Ending, Run, RunEvent
from kfp_volcano.pipelines.client import Client
from kfp_volcano.pipelines.ir import CompiledPipeline
from kfpapi.server import KfpApi
from kfpapi.state import Backend

Make = Callable[..., Client]
STATES = {
    "SUCCEEDED": Ending.SUCCEEDED,
    "FAILED": Ending.FAILED,
    "CANCELED": Ending.CANCELED,
    "SKIPPED": Ending.SKIPPED,
}


@pytest.fixture(name="run")
def _run(client: Make, small: CompiledPipeline) -> Run:
    """A run that was just made."""
    return client().submit(small, {"epochs": 1})


@pytest.mark.parametrize("last", list(Ending))
def test_a_run_is_followed_to_whatever_end_it_has(run: Run, backend: Backend, last: Ending):
    """Each state that ends a run ends the waiting, also the cancelled one, which kfp's own client does not know."""
    backend.plot.states = [(0, "PENDING"), (3, "RUNNING"), (90, last.value)]
    assert run.wait() is last
    assert run.ending is last


def test_what_happens_is_told_once_and_in_order(run: Run, backend: Backend):
    """The run's and its tasks' states as they come; not what KFP adds to a task: drivers, executors, attempts."""
    backend.plot.states = [(0, "PENDING"), (3, "RUNNING"), (40, "FAILED")]
    backend.plot.tasks = {
        "small-x7l2k": [(3, "RUNNING"), (40, "FAILED")],
        "root": [(3, "RUNNING")],
        "root-driver": [(3, "RUNNING"), (4, "SUCCEEDED")],
        "submit-driver": [(5, "SUCCEEDED")],
        "submit": [(6, "RUNNING"), (12, "SUCCEEDED")],
        "submit(0)": [(6, "RUNNING"), (8, "FAILED")],
        "submit(1)": [(9, "RUNNING"), (12, "SUCCEEDED")],
        "executor": [(6, "RUNNING"), (12, "SUCCEEDED")],
        "train-1": [(20, "RUNNING"), (35, "FAILED")],
        "collect": [(36, None)],
    }
    backend.plot.children = {"small-x7l2k": ["small-x7l2k-123"], "root": ["small-x7l2k-124"]}
    assert list(run.follow()) == [
        RunEvent("", "PENDING"),
        RunEvent("", "RUNNING"),
        RunEvent("submit", "RUNNING"),
        RunEvent("submit (attempt 2)", "RUNNING"),
        RunEvent("submit", "SUCCEEDED"),
        RunEvent("submit (attempt 2)", "SUCCEEDED"),
        RunEvent("train-1", "RUNNING"),
        RunEvent("train-1", "FAILED"),
        RunEvent("", "FAILED"),
    ]
    assert run.failures() == ["train-1"]


def test_a_run_that_failed_is_explained_by_what_its_steps_printed_last(run: Run, backend: Backend):
    """Of the executors that failed, whichever template they are of; not what KFP prints around a program."""
    backend.plot.states = [(0, "FAILED")]
    backend.plot.tasks = {"executor": [(0, "FAILED")], "work": [(0, "FAILED")]}
    backend.plot.children = {"executor": ["small-x7l2k-77", "small-x7l2k-78"]}
    backend.logs["small-x7l2k-retry-system-container-impl-78"] = """\
I1130 17:46:05.842844      15 main.go:67] Setting log level to: '1'
[KFP Executor 2026-11-30 17:46:06,066 INFO]: Got executor_input:
{
    "inputs": {}
}
reading

submit: the queue is closed
E1130 17:46:09.092056      15 launcher_v2.go:449] Component failed to execute successfully: exit status 1
time="2026-11-30T17:46:09.200Z" level=info msg="sub-process exited"
"""
    assert run.last_words() == ["reading", "submit: the queue is closed"]
    assert run.last_words(1) == ["submit: the queue is closed"]
    backend.logs["small-x7l2k-retry-system-container-impl-78"] = """\
I1130 18:02:28.802782      17 main.go:67] Setting log level to: '1'
E1130 18:02:29.042326      17 launcher_v2.go:449] Component failed: unrecognized uri format
Error: exit status 1
"""
    assert run.last_words() == ["Component failed: unrecognized uri format"]
    backend.logs.clear()
    assert run.last_words() == []


def test_a_terminated_run_is_not_taken_for_a_failed_one(run: Run, backend: Backend):
    """KFP says FAILED after CANCELING: whoever has seen that says cancelled."""
    assert run.terminate()
    assert list(run.follow()) == [RunEvent("", "CANCELING"), RunEvent("", "FAILED")]
    assert run.ending is Ending.CANCELED
    assert not run.terminate()


def test_followed_again_it_goes_on_where_it_was_left(run: Run, backend: Backend):
    """What was told is not told again."""
    backend.plot.states = [(0, "PENDING"), (3, "RUNNING"), (9, "SUCCEEDED")]
    backend.plot.tasks = {"work": [(0, "RUNNING"), (9, "SUCCEEDED")]}
    first = run.follow()
    assert [next(first), next(first), next(first)] == [
        RunEvent("work", "RUNNING"),
        RunEvent("", "PENDING"),
        RunEvent("", "RUNNING"),
    ]
    assert list(run.follow()) == [RunEvent("work", "SUCCEEDED"), RunEvent("", "SUCCEEDED")]


def test_a_run_that_another_terminates_ends_as_cancelled(run: Run, backend: Backend):
    """From the UI, say, while it is followed."""
    terminated_at = backend.clock() + 30

    def on_sleep() -> None:
        if backend.clock() >= terminated_at and not backend.terminated:
            backend.run_service_terminate_run(run.run_id)

    backend.on_sleep = on_sleep
    assert run.wait() is Ending.CANCELED


def test_terminating_a_run_that_has_ended_finds_it_so(run: Run, backend: Backend):
    """No error: it is over, as it was to be."""
    backend.plot.states = [(0, "SUCCEEDED")]
    assert not run.terminate()
    assert run.ending is Ending.SUCCEEDED


def test_a_backend_may_be_away_for_minutes_while_a_run_is_followed(run: Run, backend: Backend, api: KfpApi):
    """Its API server is restarted: nothing is lost, and nothing told twice."""
    away = backend.clock() + 10, backend.clock() + 400
    api.fault = lambda _: Refuse(503) if away[0] < backend.clock() < away[1] else None
    backend.plot.states = [(0, "PENDING"), (3, "RUNNING"), (500, "SUCCEEDED")]
    assert [event.state for event in run.follow()] == ["PENDING", "RUNNING", "SUCCEEDED"]


def test_a_backend_that_does_not_come_back_is_given_up(run: Run, backend: Backend, api: KfpApi):
    """After ten minutes; the run itself goes on."""
    began = backend.clock()
    api.fault = lambda _: Refuse(503)
    with pytest.raises(UnavailableError):
        run.wait()
    assert 500 < backend.clock() - began < 700


def test_a_run_that_is_deleted_is_not_waited_for(run: Run, backend: Backend):
    """Its end will not be told."""
    backend.rows["runs"].clear()
    with pytest.raises(NotFoundError):
        run.wait()


def test_a_long_run_costs_few_requests(run: Run, backend: Backend, api: KfpApi):
    """An hour of one state: looked at every ten seconds at the most."""
    backend.plot.states = [(0, "RUNNING"), (3600, "SUCCEEDED")]
    asked = len(api.seen)
    run.wait()
    assert len(api.seen) - asked <= 3600 / 10 + 15
