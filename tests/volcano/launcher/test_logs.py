# SPDX-License-Identifier: Apache-2.0
"""What pods print is printed once, from one step of the DAG to the next."""

from __future__ import annotations

import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfp_volcano.errors import ForbiddenError, NotFoundError, UnavailableError
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.launcher.log_record import LogRecord
from kfp_volcano.volcano.launcher.logs import PRINT_S, LogTail
from kfp_volcano.volcano.launcher.reference import JobRef

REF = JobRef("ml", "job")
JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "job", "namespace": "ml", "uid": "u"},
}


class Printing(Store):
    """A cluster whose pods print what a test says; places are numbers of lines."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: dict[str, list[str]] = defaultdict(list)
        self.ended: set[str] = set()
        self.gone: set[str] = set()
        self.failures: list[Exception] = []
        self.streams = 0
        self.writes = 0
        self.answers: list[Exception | None] = []
        """What becomes of the next writes: None is well; an error is raised after the write was carried out."""

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self._written(super().create(manifest))

    def patch(self, *arguments: Any) -> dict[str, Any]:
        return self._written(super().patch(*arguments))

    def _written(self, made: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        return made

    def follow_logs(
        self, pod: str, namespace: str, *, after: str = "", stop: threading.Event
    ) -> Iterator[tuple[str, str]]:
        self.streams += 1
        place = int(after or 0)
        while not stop.is_set():
            if self.failures:
                raise self.failures.pop()
            ended = pod in self.ended
            while place < len(self.printed[pod]):
                place += 1
                yield self.printed[pod][place - 1] + "\n", str(place)
            if pod in self.gone:
                raise NotFoundError(pod)
            if ended:
                return
            stop.wait(0.01)


def pod(name: str, uid: str = "", **state: Any) -> dict[str, Any]:
    states = [{"state": state or {"running": {}}}]
    return {"metadata": {"name": name, "namespace": "ml", "uid": uid or name}, "status": {"containerStatuses": states}}


@pytest.fixture(name="cluster")
def _cluster() -> Printing:
    return Printing()


@pytest.fixture(name="tail")
def _tail(cluster: Printing) -> Iterator[Callable[..., tuple[LogTail, list[str]]]]:
    opened: list[LogTail] = []

    def make(clock: Callable[[], float] | None = None) -> tuple[LogTail, list[str]]:
        said: list[str] = []
        record = LogRecord(cluster, JOB, REF, by=f"step-{len(opened)}")  # type: ignore[arg-type]
        ticks = itertools.count(0.0, PRINT_S)
        opened.append(
            LogTail(cluster, REF, record, said.append, wake=lambda: None, clock=clock or (lambda: next(ticks)))
        )  # type: ignore[arg-type]
        return opened[-1], said

    yield make
    for each in opened:
        each.close()


def settle(tail: LogTail, pods: list[dict[str, Any]], said: list[str], count: int) -> None:
    """Pump until so many lines have been said."""
    woken = threading.Event()
    for _ in range(3000):
        tail.pump(pods)
        if len(said) >= count:
            return
        woken.wait(0.01)
    pytest.fail(f"{said} instead of {count} lines")


def test_lines_are_prefixed_with_their_pod(cluster: Printing, tail: Any) -> None:
    """All of a pod's lines in order, by its name without the Job's; what has not started is not asked."""
    following, said = tail()
    cluster.printed["job-core-0"] = ["one", "two"]
    settle(following, [pod("job-core-0"), pod("job-core-1", waiting={"reason": "ContainerCreating"})], said, 2)
    assert said == ["core-0 | one", "core-0 | two"]
    assert cluster.streams == 1


def test_the_next_step_goes_on(cluster: Printing, tail: Any) -> None:
    """What one step has printed and noted, the next does not repeat; nothing in between is lost."""
    first, said = tail()
    pods = [pod("job-core-0")]
    cluster.printed["job-core-0"] = ["one", "two"]
    settle(first, pods, said, 2)
    first.close()
    cluster.printed["job-core-0"].append("three")
    second, heard = tail()
    cluster.ended.add("job-core-0")
    second.finish(pods)
    assert heard == ["core-0 | three"]


def test_a_record_that_another_has_written_over_counts_for_nothing(cluster: Printing, tail: Any) -> None:
    """All is printed again, rather than nothing, or a step that fails for it."""
    broken = {"by": "hand", "places": "no JSON"}
    metadata = {"name": "job-logs", "namespace": "ml"}
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": broken})
    following, said = tail()
    cluster.printed["job-core-0"] = ["one"]
    settle(following, [pod("job-core-0")], said, 1)
    assert said == ["core-0 | one"]


def test_only_what_may_have_been_printed_is_printed_again_and_marked(cluster: Printing, tail: Any) -> None:
    """A killed step leaves some lines in doubt: those it had announced last. Those before and behind are not."""
    first, said = tail()
    pods = [pod("job-core-0")]
    for line in ("one", "two"):
        cluster.printed["job-core-0"].append(line)
        settle(first, pods, said, len(cluster.printed["job-core-0"]))
    # killed here: "two" was announced, and nobody can tell from the record whether it was printed
    cluster.printed["job-core-0"].append("three")
    second, heard = tail()
    settle(second, pods, heard, 2)
    assert heard == ["core-0 (again?) | two", "core-0 | three"]
    third, more = tail()
    cluster.ended.add("job-core-0")
    third.finish(pods)
    assert set(more) <= {"core-0 (again?) | two", "core-0 (again?) | three"}


def test_a_step_that_was_replaced_falls_silent(cluster: Printing, tail: Any) -> None:
    """Of two attempts that are both alive, one without knowing it, only the later one prints."""
    first, said = tail()
    pods = [pod("job-core-0")]
    cluster.printed["job-core-0"] = ["one"]
    settle(first, pods, said, 1)
    for _ in range(2):
        first.pump(pods)  # nothing is in doubt any more
    second, heard = tail()
    second.pump(pods)
    cluster.printed["job-core-0"] += ["two", "three"]
    settle(second, pods, heard, 2)
    settle(first, pods, said, 2)
    first.finish(pods)
    assert said == ["core-0 | one", "another attempt of this step prints the logs from here on"]
    assert heard == ["core-0 | two", "core-0 | three"]


@pytest.mark.parametrize("number", range(4))
def test_a_write_without_an_answer_is_written_again(cluster: Printing, tail: Any, number: int) -> None:
    """Lines wait until it is certain that they are announced; then each is printed once, and none is in doubt."""
    cluster.answers = [*([None] * number), UnavailableError("away"), UnavailableError("away")]
    following, said = tail()
    pods = [pod("job-core-0")]
    tries = 0
    for line in ("one", "two"):
        cluster.printed["job-core-0"].append(line)
        while f"core-0 | {line}" not in said:
            tries += 1
            assert tries < 3000
            try:
                following.pump(pods)
            except UnavailableError:
                continue
    cluster.answers = []
    following.close()
    assert said == ["core-0 | one", "core-0 | two"]
    assert json.loads(cluster.get("ConfigMap", "job-logs", "ml")["data"]["printing"]) == {}


def test_lines_are_printed_without_a_record_where_none_may_be_kept(cluster: Printing, tail: Any) -> None:
    """Who may not write the ConfigMap prints all the same."""
    cluster.answers = [ForbiddenError("no permission")]
    following, said = tail()
    cluster.printed["job-core-0"] = ["one"]
    settle(following, [pod("job-core-0")], said, 1)
    assert said == ["core-0 | one"]
    assert cluster.writes == 1


def test_a_stream_that_fails_is_taken_up(cluster: Printing, tail: Any) -> None:
    """Where the cluster gave no answer another stream goes on behind what was read."""
    following, said = tail()
    pods = [pod("job-core-0")]
    cluster.printed["job-core-0"] = ["one"]
    settle(following, pods, said, 1)
    cluster.failures = [UnavailableError("away"), UnavailableError("away")]
    cluster.printed["job-core-0"].append("two")
    settle(following, pods, said, 3)
    assert said == ["core-0 | one", "the log of core-0 cannot be read at the moment: away", "core-0 | two"]
    assert cluster.streams == 3


def test_a_log_that_may_not_be_read_is_told_once(cluster: Printing, tail: Any) -> None:
    """What no retry can help is not tried again: the training is followed without that pod's output."""
    following, said = tail()
    cluster.failures = [ForbiddenError("no permission")]
    following.finish([pod("job-core-0")])
    following.finish([pod("job-core-0")])
    assert said == ["the log of core-0 cannot be read: no permission"]
    assert cluster.streams == 1


def test_what_is_told_is_not_read_again(cluster: Printing, tail: Any) -> None:
    """A pod that has ended is read to its end, once; one that has gone, too."""
    following, said = tail()
    cluster.printed |= {"job-core-0": ["one"], "job-core-1": ["other"]}
    cluster.ended.add("job-core-0")
    cluster.gone.add("job-core-1")
    pods = [pod("job-core-0", terminated={}), pod("job-core-1", terminated={})]
    following.finish(pods)
    following.finish(pods)
    assert sorted(said) == ["core-0 | one", "core-1 | other"]
    assert cluster.streams == 2


def test_a_successor_is_read_when_its_predecessor_is_told(cluster: Printing, tail: Any) -> None:
    """A pod that came in place of one of the same name is another stream, behind the first."""
    following, said = tail()
    cluster.printed["job-core-0"] = ["one"]
    settle(following, [pod("job-core-0", "old")], said, 1)
    cluster.ended.add("job-core-0")
    cluster.printed["job-core-0"].append("two")
    following.finish([pod("job-core-0", "new")])
    following.finish([pod("job-core-0", "new")])
    assert said == ["core-0 | one", "core-0 | two"]
    assert cluster.streams == 2


def test_writes_are_as_seldom_as_prints(cluster: Printing, tail: Any) -> None:
    """However much a pod prints, it is announced once in a while; where nothing comes, nothing is written."""
    now, moment = [0.0], threading.Event()
    following, said = tail(lambda: now[0])
    pods = [pod("job-core-0")]
    for number in range(20):
        now[0] += PRINT_S
        cluster.printed["job-core-0"].append(f"line {number}")
        moment.wait(0.03)
        for _ in range(5):
            following.pump(pods)
    assert cluster.writes <= 1 + 20
    settle(following, pods, said, 0)
    for _ in range(10):
        now[0] += PRINT_S
        following.pump(pods)
    assert cluster.writes <= 1 + 20 + 2
    assert said[0] == "core-0 | line 0"
    assert json.loads(cluster.get("ConfigMap", "job-logs", "ml")["data"]["printing"]) == {}
