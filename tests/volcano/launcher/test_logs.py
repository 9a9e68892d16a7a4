"""What pods print is printed once, from one step of the DAG to the next."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfp_volcano.errors import ForbiddenError, NotFoundError, UnavailableError
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.launcher.logs import LogTail
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

    def make(clock: Callable[[], float] = lambda: 0.0) -> tuple[LogTail, list[str]]:
        said: list[str] = []
        opened.append(LogTail(cluster, JOB, REF, said.append, clock=clock))  # type: ignore[arg-type]
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
    first.save()
    cluster.printed["job-core-0"].append("three")
    second, heard = tail()
    cluster.ended.add("job-core-0")
    second.finish(pods)
    assert heard == ["core-0 | three"]


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


def test_progress_is_noted_as_it_goes(cluster: Printing, tail: Any) -> None:
    """A step that is killed has noted how far it was, at most so many seconds before, and not with each line."""
    now = [0.0]
    following, said = tail(lambda: now[0])
    pods = [pod("job-core-0")]
    for number in range(3):
        cluster.printed["job-core-0"].append(f"line {number}")
        settle(following, pods, said, number + 1)
    with pytest.raises(NotFoundError):
        cluster.get("ConfigMap", "job-logs", "ml")
    now[0] = 10.0
    following.pump(pods)
    assert cluster.get("ConfigMap", "job-logs", "ml")["data"] == {"places": '{"job-core-0": "3"}'}
