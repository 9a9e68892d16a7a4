# SPDX-License-Identifier: Apache-2.0
"""A process in the storm: threads that are killed together, a clock of its own, and a way to the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kfp_volcano.volcano.cluster.kubernetes.api import Patience
from kfp_volcano.volcano.cluster.kubernetes.cluster import KubernetesCluster
from kfp_volcano.volcano.cluster.kubernetes.connection import Answer, Silence
from kfp_volcano.volcano.cluster.kubernetes.request import Request
from kfp_volcano.volcano.model.objects import key_of
from simulation.faults import site_of
from simulation.server import Stream
from simulation.threads import Killed

if TYPE_CHECKING:
    from storms.storm import Storm

__all__ = ["Program", "View"]

ANSWER_S = 10.0
"""How long a process waits for an answer before it takes the connection for dead."""
_OK = 200
_LATE = 0.5
"""How many of the writes that stall arrive after all."""
_STALLED = 0.1
"""How often a change of a Job stalls, beside all other faults: there is most to lose."""
_MOST_CALLS = 3000
"""Calls of one process within a minute: more is a loop without an end."""


class View(KubernetesCluster):
    """The cluster through the real adapter, which also notes what its process has been told, and what it wrote."""

    def __init__(self, program: Program, patience: Patience) -> None:
        super().__init__(program, patience=patience)
        self._program = program
        self._patching = False
        self.seen: dict[str, dict[Any, Any]] = {}

    def pages(self, kind: str, namespace: str = "") -> Iterator[Any]:
        """See `Cluster.pages`."""
        found: dict[Any, Any] = {}
        for objects, version in super().pages(kind, namespace):
            found.update((key_of(each), each) for each in objects)
            yield objects, version
        self.seen[kind] = found

    def watch(self, kind: str, namespace: str = "", *, resource_version: str, timeout_s: float = 30.0) -> Iterator[Any]:
        """See `Cluster.watch`."""
        for event in super().watch(kind, namespace, resource_version=resource_version, timeout_s=timeout_s):
            shelf = self.seen.setdefault(kind, {})
            if event.type == "DELETED":
                shelf.pop(key_of(event.object), None)
            elif event.type != "BOOKMARK":
                self._note(kind, event.object)
            yield event

    def get(self, kind: str, name: str, namespace: str = "") -> Any:
        """See `Cluster.get`."""
        found = super().get(kind, name, namespace)
        if kind in self.seen and not self._patching:  # what the adapter reads for itself it tells nobody
            self._note(kind, found)
        return found

    def patch(self, kind: str, name: str, namespace: str, patch: Any) -> Any:
        """See `Cluster.patch`."""
        self._program.began_at = self._program.clock()
        self._patching = True
        try:
            stored = super().patch(kind, name, namespace, patch)
        finally:
            self._patching = False
        if kind in self.seen:
            self._note(kind, stored)
        return stored

    def _note(self, kind: str, manifest: Any) -> None:
        """The newest that it was told or has written."""
        known = self.seen[kind].get(key_of(manifest))
        if known is None or int(known["metadata"]["resourceVersion"]) <= int(manifest["metadata"]["resourceVersion"]):
            self.seen[kind][key_of(manifest)] = manifest


class Program:
    """A process. It is its own connection to the API server: every call may be late, lost, refused, or its last."""

    def __init__(self, storm: Storm, name: str, main: Callable[[Program], None]) -> None:
        self.storm = storm
        self.name = name
        self.skew_s = 0.0
        self.jumped_at = 0.0
        """When its clock was set last, in true time."""
        self.late = False
        """Whether what it has written is only now carried out."""
        self.began_at = 0.0
        """When it began the change it makes at present, by its own clock."""
        self.cut_until = 0.0
        self.stalled_until = 0.0
        self.alive = True
        self._main = main
        self._too_old: dict[str, int] = {}
        """Up to which version it may not watch a kind any more."""
        self._calls = 0
        self._minute = 0
        turns = storm.turns
        patience = Patience(answer_s=ANSWER_S, clock=turns.time, sleep=turns.sleep, jitter=storm.faults.random.random)
        self.cluster = View(self, patience)

    def clock(self) -> float:
        """The time as this process has it."""
        return self.storm.turns.now + self.skew_s

    def start(self) -> None:
        """Run."""
        self.storm.turns.Thread(target=self._run, group=self).start()

    def kill(self) -> None:
        """SIGKILL: nothing it does from now on is seen by anybody."""
        if self.alive:
            self.alive = False
            self.storm.turns.kill(self)

    def _run(self) -> None:
        try:
            self._main(self)
        finally:
            self.alive = False

    # As the adapter's `Connection`.
    def send(self, request: Request, *, read_s: float) -> Answer:
        fault = self._way(request, read_s)
        if fault and fault.isdigit():
            return Answer(int(fault), {}, b'{"kind": "Status", "message": "injected"}')
        if fault is None:
            return Answer(*self._answer(request))
        how, _, after = fault.partition(" ")
        if after:
            self._answer(request)
        elif how == "stalled" and request.verb in {"create", "patch"} and self.storm.faults.random.random() < _LATE:
            late = self.storm.faults.random.uniform(read_s / 2, 4 * read_s)
            self.storm.at(late, lambda: self._arrives(request))
        if how == "kill":
            self._die(f"{'after' if after else 'before'} {request}")
        self._no_answer(how, read_s)
        raise AssertionError

    @contextmanager
    def open(self, request: Request, *, read_s: float) -> Iterator[tuple[Answer, Iterator[bytes]]]:
        fault = self._way(request, read_s)
        if fault and fault.isdigit():
            yield Answer(int(fault), {}, b""), iter([b'{"kind": "Status", "message": "injected"}'])
            return
        if fault:
            how = fault.partition(" ")[0]
            if how == "kill":
                self._die(f"before {request}")
            self._no_answer(how, read_s)
        harm = self.storm.faults.for_stream(site_of(self.name, request))
        opened = self.storm.server.open(request, 0, self.storm.turns.now)
        kind = request.kind.name
        if harm == "410":
            self._too_old[kind] = self.storm.store.version
        if int(request.query.get("resourceVersion", 0)) < self._too_old.get(kind, 0):
            yield Answer(410, {}, b""), iter([b'{"kind": "Status", "code": 410, "message": "too old"}'])
        elif isinstance(opened, Stream):
            yield Answer(200, {}, b""), self._chunks(opened, read_s, harm)
        else:
            yield Answer(opened[0], {}, b""), iter([opened[1]])

    def _chunks(self, stream: Stream, silence_s: float, harm: str | None) -> Iterator[bytes]:
        storm, turns, random = self.storm, self.storm.turns, self.storm.faults.random
        kind = stream.request.kind.name
        cut_after = random.randint(1, 4) if harm == "cut" else None
        stream.silent = harm == "silent"
        # Some deliver late, and some twice: a proxy in between that tries again.
        lag_s = random.choice([0.01, 0.05, 0.05, 0.2, *([2.0, 8.0] if storm.faults.on else [])])
        twice = storm.faults.on and random.random() < 0.1
        deadline = turns.now + silence_s
        while True:
            if self._cut():
                raise Silence("reset", sent=True)
            changes = storm.changes[kind]
            if data := storm.server.read(stream, turns.now):
                turns.sleep(random.uniform(0.5, 1.0) * lag_s)
                deadline = turns.now + silence_s
                if cut_after == 0:
                    yield data[: random.randint(1, len(data))]
                    raise Silence("reset", sent=True)
                yield b"".join(line * 2 for line in data.splitlines(keepends=True)) if twice else data
                cut_after = None if cut_after is None else cut_after - 1
            elif data is None:
                return
            elif turns.now >= deadline:
                raise Silence("nothing comes", sent=True)
            else:
                until = deadline if stream.silent else min(deadline, stream.ends_at)
                storm.news[kind].wait_for(lambda now=changes: storm.changes[kind] != now, until - turns.now)

    def _way(self, request: Request, read_s: float) -> str | None:
        """The way to the server, and what befalls a call there."""
        storm = self.storm
        if not self.alive:
            raise Killed
        storm.turns.sleep(storm.faults.random.uniform(0.001, 0.03))
        if storm.turns.now < self.stalled_until:  # the whole process stands still: a node that is out of breath
            storm.turns.sleep(self.stalled_until - storm.turns.now)
        minute = int(storm.turns.now // 60)
        self._minute, self._calls = minute, self._calls + 1 if minute == self._minute else 1
        if self._calls > _MOST_CALLS:
            storm.broken(f"{self.name} makes more than {_MOST_CALLS} calls a minute, at last {request}")
            self._die("for that")
        if self._cut():
            self._no_answer(storm.faults.random.choice(["refused", "stalled"]), min(read_s, 5.0))
        fault = storm.faults.for_request(site_of(self.name, request), request)
        if fault is None and storm.faults.on and (request.verb, request.kind.name) == ("patch", "Job"):
            return "stalled" if storm.faults.random.random() < _STALLED else None
        return fault

    def _cut(self) -> bool:
        return self.storm.turns.now < max(self.cut_until, self.storm.down_until)

    def _arrives(self, request: Request) -> None:
        """A request that was long under way is carried out after all, though nobody waits for its answer."""
        self.late = True
        status, _, _ = self._answer(request)
        self.late = False
        self.storm.count(f"late {'done' if status == _OK else 'refused'}")

    def _answer(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        self.storm.writer = self
        try:
            status, body = self.storm.server.answer(request)
        finally:
            self.storm.writer = None
        return status, {}, body

    def _no_answer(self, how: str, read_s: float) -> None:
        if how == "stalled":
            self.storm.turns.sleep(read_s)
        raise Silence(how, sent=how != "refused")

    def _die(self, why: str) -> None:
        self.storm.say(f"{self.name} is killed {why}")
        self.storm.killed += 1
        self.kill()
        raise Killed
