# SPDX-License-Identifier: Apache-2.0
"""A pod's log is told whole and once, whatever restarts and whenever one looks."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.cluster.kubernetes.api import Patience
from kfp_volcano.volcano.cluster.kubernetes.connection import Silence
from kfp_volcano.volcano.cluster.kubernetes.logs import LogReader
from kfp_volcano.volcano.cluster.kubernetes.request import Request

MAIN, INIT = "main", "init"


@dataclass
class Kubelet:
    """A kubelet's answers about one pod: the present run of each container and the one before, with times."""

    init: bool = False
    zone: timezone = timezone.utc
    runs: dict[str, list[list[tuple[int, bytes]]]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    nanos: int = 1_800_000_000_000_000_000
    cut_after: int | None = None
    unended: bool = False
    """Whether the last line of each run lacks its end."""
    uid: str = "u-1"
    patience: Patience = field(default_factory=Patience)

    def start(self, container: str = MAIN) -> None:
        self.runs.setdefault(container, []).append([])

    def print(self, text: bytes, container: str = MAIN, *, after_ns: int = 1) -> None:
        self.nanos += after_ns
        self.runs[container][-1].append((self.nanos, text))

    @property
    def pod(self) -> dict[str, Any]:
        before = [{"name": INIT}] if self.init else []
        done = [{"name": name, "state": {"terminated": {"exitCode": 0}}} for name in self.ended]
        return {
            "metadata": {"name": "p", "namespace": "n", "uid": self.uid},
            "spec": {
                "initContainers": [*before, {"name": "mesh", "restartPolicy": "Always"}],
                "containers": [{"name": MAIN}],
            },
            "status": {"initContainerStatuses": done, "containerStatuses": done},
        }

    @contextmanager
    def stream(self, request: Request, *, silence_s: float, patience_s: float) -> Iterator[Iterator[bytes]]:
        runs = self.runs.get(request.query["container"], [])
        back = 2 if request.query.get("previous") else 1
        if len(runs) < back:
            raise InvalidError("previous terminated container not found" if back == 2 else "is waiting to start")
        yield self._chunks(runs[-back], request)

    def _chunks(self, run: list[tuple[int, bytes]], request: Request) -> Iterator[bytes]:
        since = request.query.get("sinceTime")
        # The kubelet is told whole seconds only.
        second = datetime.fromisoformat(since[:19] + since[29:].replace("Z", "+00:00")).timestamp() if since else 0
        lines = [self._stamped(at, text) for at, text in run if at // 10**9 >= second]
        lines = lines[-int(request.query.get("tailLines", len(lines)) or len(lines)) :] if lines else []
        body = b"".join(lines)
        if self.unended:
            body = body.removesuffix(b"\n")
        limit = len(body) if self.cut_after is None else self.cut_after
        step = max(7, len(body) // 500)
        for begin in range(0, min(limit, len(body)), step):
            yield body[begin : min(begin + step, limit)]
        if self.cut_after is not None:
            raise Silence("cut", sent=True)

    def _stamped(self, at: int, text: bytes) -> bytes:
        seconds, nanos = divmod(at, 10**9)
        stamp = datetime.fromtimestamp(0, self.zone) + timedelta(seconds=seconds)
        offset = stamp.strftime("%z")
        zone = "Z" if offset == "+0000" else f"{offset[:3]}:{offset[3:]}"
        return f"{stamp:%Y-%m-%dT%H:%M:%S}.{nanos:09d}{zone} ".encode() + text + b"\n"


def read(kubelet: Kubelet, after: str = "", **options: Any) -> tuple[str, str]:
    reader = LogReader(kubelet, kubelet.pod, after, **options)  # type: ignore[arg-type]
    return "".join(reader.lines()), str(reader.place)


@pytest.mark.parametrize("zone", [timezone.utc, timezone(timedelta(hours=5, minutes=30))])
@given(st.data())
def test_nothing_is_lost_and_nothing_comes_twice(zone: timezone, data: st.DataObject) -> None:
    """However prints, restarts, readings and broken readings follow each other, each line is told once, in order.

    Between two whole readings a container restarts at most once: of earlier runs the kubelet has nothing any more.
    """
    kubelet = Kubelet(zone=zone)
    kubelet.start()
    printed, told, place, restarted = [], "", "", False
    for number in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["print", "print", "print", "read", "break", "restart"])):
            case "print":
                gap = data.draw(st.sampled_from([0, 1, 999_999_999, 3_000_000_000]))
                kubelet.print(f"line {number}".encode(), after_ns=gap)
                printed.append(f"line {number}\n")
            case "restart" if not restarted:
                kubelet.nanos += 1
                kubelet.start()
                restarted = True
            case "break" | "read" as how:
                kubelet.cut_after = data.draw(st.integers(0, 120)) if how == "break" else None
                text, place = read(kubelet, place)
                told += text
                restarted = restarted and how == "break"
    kubelet.cut_after = None
    told += read(kubelet, place)[0]
    assert told == "".join(printed)


def test_a_last_line_without_an_end_is_told_when_its_run_is_over() -> None:
    """Before, more of it may come; then it is the run's, whether another has begun or the pod has ended."""
    kubelet = Kubelet(unended=True)
    kubelet.start()
    kubelet.print(b"one")
    kubelet.print(b"first end")
    text, place = read(kubelet)
    assert text == "one\n"
    kubelet.start()
    kubelet.print(b"second end")
    more, place = read(kubelet, place)
    assert more == "first end\n"
    kubelet.ended.add(MAIN)
    assert read(kubelet, place)[0] == "second end\n"


def test_init_containers_are_told_first() -> None:
    """The next container follows when the one before has succeeded; sidecars are left out."""
    kubelet = Kubelet(init=True)
    kubelet.start(INIT)
    kubelet.print(b"checking", INIT)
    text, place = read(kubelet)
    assert text == "checking\n"
    kubelet.print(b"fine", INIT)
    kubelet.ended.add(INIT)
    kubelet.start()
    kubelet.print(b"training")
    text, place = read(kubelet, place)
    assert text == "fine\ntraining\n"
    assert read(kubelet, place) == ("", place)


def test_a_new_pod_of_the_same_name_begins_anew() -> None:
    """A place belongs to a pod: its successor's log is told from its beginning, whatever its node's clock says."""
    kubelet = Kubelet()
    kubelet.start()
    kubelet.print(b"old")
    _, place = read(kubelet)
    successor = Kubelet(uid="u-2", nanos=kubelet.nanos - 10**12)
    successor.start()
    successor.print(b"new")
    assert read(successor, place)[0] == "new\n"


def test_a_pod_that_has_not_started_has_printed_nothing() -> None:
    """Nothing is told, and reading goes on later from the beginning."""
    kubelet = Kubelet()
    text, place = read(kubelet)
    assert text == ""
    kubelet.start()
    kubelet.print(b"up")
    assert read(kubelet, place)[0] == "up\n"


def test_an_endless_line_comes_in_pieces() -> None:
    """A progress bar without line ends is told as it grows, and not again."""
    kubelet = Kubelet()
    kubelet.start()
    kubelet.print(b"50%\r" * 40_000)
    text, place = read(kubelet)
    assert text.replace("\n", "") == "50%\r" * 40_000
    kubelet.print(b"done")
    assert read(kubelet, place)[0] == "done\n"


def test_the_kubelets_own_words_are_left_out() -> None:
    """What comes without a time was not printed by the container."""

    class Broken(Kubelet):
        def _chunks(self, run: list[tuple[int, bytes]], request: Request) -> Iterator[bytes]:
            yield b"unable to retrieve container logs for containerd://4711"

    kubelet = Broken()
    kubelet.start()
    assert read(kubelet)[0] == ""


def test_the_tail_alone_can_be_read() -> None:
    """The last lines of all runs that are kept."""
    kubelet = Kubelet()
    for number in range(3):
        kubelet.start()
        for line in range(3):
            kubelet.print(f"{number}.{line}".encode())
    assert read(kubelet, tail=2)[0] == "1.1\n1.2\n2.1\n2.2\n"


def test_memory_stays_flat_however_much_is_printed() -> None:
    """A log of many megabytes passes through in pieces; nothing of it is kept."""

    class Endless(Kubelet):
        def _chunks(self, run: list[tuple[int, bytes]], request: Request) -> Iterator[bytes]:
            for number in range(0, 20_000, 50):
                each = range(number, number + 50)
                yield b"".join(b"2026-11-30T13:00:00.%09dZ %s\n" % (nanos, b"x" * 300) for nanos in each)

    kubelet = Endless()
    kubelet.start()
    reader = LogReader(kubelet, kubelet.pod, "")  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        assert sum(1 for _ in reader.lines()) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
