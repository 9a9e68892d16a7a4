# SPDX-License-Identifier: Apache-2.0
"""One run of the DAG under faults: its steps as processes that are killed and retried as KFP does, in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kfp_volcano.errors import NotFoundError
from kfp_volcano.schemas.names import GPU, RESIZE
from kfp_volcano.schemas.records import ResizeOutcome, parse_list
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.model.objects import Transition
from simulation.faults import Faults, role_of, site_of
from simulation.nodes import Nodes
from simulation.process import Process
from simulation.server import Server, Stream
from simulation.steps import JOB, NAMESPACE, autoscaler, step

__all__ = ["Printed", "Simulation"]

START = 1_796_000_000.0
SEGMENTS = 3
LONGEST_S = 1800.0
_MOST_CALLS = 5000
"""Without letting time pass: more is a loop without an end."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A line that a step has printed."""

    step: str
    attempt: int
    at: float
    text: str


@dataclass
class Simulation:
    """A run with a seed; `run` returns when it is over, and what happened stands here."""

    seed: int
    folder: Path
    rate: float = 0.03
    printed: list[Printed] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    jobs_created: int = 0
    state: str = "Running"
    """How the run stands for KFP."""
    terminated: bool = False
    killed: int = 0
    stalled: int = 0
    job_phases: list[str] = field(default_factory=list)
    resized: int = 0
    """How often the number of workers changed."""
    most_open: int = 0
    """The most resizes that were open at one moment."""
    followed_to_the_end: bool = False
    """Whether a step saw the end of the Job."""
    ends: dict[str, int] = field(default_factory=dict)
    """How each step has ended: an exit code."""

    def __post_init__(self) -> None:
        self.now = START
        self.random = Random(self.seed)
        self.faults = Faults(Random(self.seed + 1), self.random.choice([0.0, self.rate / 3, self.rate, 2 * self.rate]))
        self.faults.kills = self.random.choice([0, 1, 1, 2, 4])
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._processes: list[Process] = []
        self._attempts: dict[str, int] = {}
        self._current = ""
        self.over = False
        self.store = Store(clock=lambda: self.now)
        self.store.listen(self._happened)
        self.server = Server(self.store)
        self.nodes = Nodes(self.store, self.server, self.at, lambda: self.now, self.random)
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {}}
        self.store.create({**claim, "metadata": {"name": "checkpoints", "namespace": NAMESPACE}})

    def run(self) -> None:
        """Until the run is over."""
        self.nodes.fails = self.random.random() < 0.15
        self.nodes.trained_at = self.now + self.random.uniform(30.0, 120.0)
        if self.random.random() < 0.15:
            self.at(self.random.uniform(1.0, 100.0), self._terminate)
        for _ in range(self.random.randint(0, 3)):
            self.at(self.random.uniform(5.0, 90.0), self._rival)
        self._start("submit")
        self._start_autoscaler(0)
        self.nodes.notice()
        try:
            while not self.over and not self.problems:
                self._turn()
        finally:
            for process in self._alive():
                process.kill()

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        """Have something done later."""
        heapq.heappush(self._events, (self.now + delay_s, next(self._numbers), act))

    # Time.
    def _turn(self) -> None:
        for process in self._alive():
            if self.now >= process.stalled_until and (self.now >= process.sleeps_until or self._news(process)):
                self._resume(process)
                self.nodes.notice()
                return
        if self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()
            return
        moments = [self._events[0][0]] if self._events else []
        for process in self._alive():
            ends = [stream.ends_at for stream in process.streams.values() if not stream.silent and not stream.told]
            moments.append(max(min([process.sleeps_until, *ends]), process.stalled_until))
        self.now = max(self.now, min(moments))
        if self.now > START + LONGEST_S:
            self.problems.append(f"the run does not end: {self._current}, {self.story[-5:]}")

    def _alive(self) -> list[Process]:
        return [process for process in self._processes if process.ended is None]

    def _news(self, process: Process) -> list[int]:
        return [
            number
            for number, stream in process.streams.items()
            if not stream.told and self.server.has_news(stream, self.now)
        ]

    # Processes.
    def _resume(self, process: Process) -> None:
        news = self._news(process)
        for number in news:
            process.streams[number].told = True
        process.pipe.send((self.now, news))
        for _ in range(_MOST_CALLS):
            if not self._serve(process, process.pipe.receive()):
                return
        self.problems.append(f"{process.name} does not wait any more")

    def _serve(self, process: Process, message: tuple[Any, ...]) -> bool:
        """Answer a call; False where it is another's turn."""
        what, *rest = message
        match what:
            case "sleep":
                process.sleeps_until = rest[0]
                return False
            case "request":
                return self._answer(process, rest[0])
            case "open":
                return self._open(process, rest[0])
            case "read":
                process.pipe.send(self._read(process.streams[rest[0]]))
            case "close":
                process.streams.pop(rest[0], None)
                process.pipe.send(None)
            case "print":
                return self._print(process, rest[0])
            case "failed":
                self.problems.append(f"{process.name}: {rest[0]}")
                process.pipe.send(None)
            case "exit":
                process.reap(rest[0])
                process.result = rest[1]
                self._ended(process)
                return False
        return True

    def _answer(self, process: Process, request: Any) -> bool:
        fault = self.faults.for_request(site_of(process.name, request), request)
        if fault in {"kill", "kill after"}:
            if fault == "kill after":
                self.server.answer(request)
            self._kill(process, f"at {request}")
            return False
        if fault and fault.isdigit():
            process.pipe.send(("answer", int(fault), {}, b'{"kind": "Status", "message": "injected"}'))
        elif fault:
            how, _, after = fault.partition(" ")
            if after:
                self.server.answer(request)
            process.pipe.send(("silence", how))
        else:
            status, body = self.server.answer(request)
            process.pipe.send(("answer", status, {}, body))
        return True

    def _open(self, process: Process, request: Any) -> bool:
        site = site_of(process.name, request)
        fault = self.faults.for_request(site, request)
        if fault in {"kill", "kill after"}:
            self._kill(process, f"at {request}")
            return False
        if fault and fault.isdigit():
            process.pipe.send(("answer", int(fault), {}, b'{"kind": "Status", "message": "injected"}'))
            return True
        if fault:
            process.pipe.send(("silence", fault.partition(" ")[0]))
            return True
        opened = self.server.open(request, next(self._numbers), self.now)
        harm = self.faults.for_stream(site)
        if harm == "410":
            process.pipe.send(("answer", 410, {}, b'{"kind": "Status", "code": 410, "message": "too old"}'))
        elif isinstance(opened, Stream):
            if harm == "cut":
                opened.cut_after = self.random.randint(1, 4)
            opened.silent = harm == "silent"
            process.streams[opened.number] = opened
            process.pipe.send(("stream", opened.number))
        else:
            process.pipe.send(("answer", opened[0], {}, opened[1]))
        return True

    def _read(self, stream: Stream) -> tuple[str, bytes]:
        stream.told = False
        if stream.cut_after == 0:
            return "cut", b""
        data = self.server.read(stream, self.now)
        if data is None:
            return "end", b""
        if data and stream.cut_after is not None:
            stream.cut_after -= 1
            if stream.cut_after == 0:  # in the middle of a line
                data = data[: max(1, len(data) - self.random.randint(1, 30))]
        return "data", data

    def _print(self, process: Process, text: str) -> bool:
        fault = self.faults.for_line(f"{role_of(process.name)} print")
        if fault != "kill":
            name, _, attempt = process.name.partition("#")
            self.printed.append(Printed(name, int(attempt or 0), self.now, text))
        if fault:
            self._kill(process, f"as it printed {text!r}")
            return False
        process.pipe.send(None)
        return True

    def _kill(self, process: Process, why: str) -> None:
        process.kill()
        self.killed += 1
        self._say(f"{process.name} killed {why}")
        self._ended(process)

    # KFP.
    def _start(self, name: str) -> None:
        attempt = self._attempts[name] = self._attempts.get(name, -1) + 1
        self._current = f"{name}#{attempt}"
        program = step(name, attempt=attempt, last=name == f"train-{SEGMENTS}", folder=self.folder)
        self._say(f"{self._current} starts")
        process = Process.start(self._current, self.now, self.random.getrandbits(30), program)
        self._processes.append(process)
        if name.startswith("train") and self.random.random() < 0.15:
            self.at(self.random.uniform(1.0, 40.0), lambda: self._stall(process))

    def _start_autoscaler(self, number: int) -> None:
        program = autoscaler(number, self.folder)
        seed = self.random.getrandbits(30)
        self._processes.append(Process.start(f"autoscaler#{number}", self.now, seed, program))

    def _stall(self, process: Process) -> None:
        """Its node is cut off: KFP starts another attempt, and some time later the old one is there again."""
        if process.ended is None and process.name == self._current and not self.terminated:
            name = process.name.partition("#")[0]
            if self._attempts[name] < 2:
                process.stalled_until = self.now + self.random.uniform(5.0, 90.0)
                self.stalled += 1
                self._say(f"{process.name} is cut off for {process.stalled_until - self.now:.0f} s")
                self._later(lambda: self._start(name))

    def _ended(self, process: Process) -> None:
        name, _, attempt = process.name.partition("#")
        self._say(f"{process.name} ended {process.ended} {process.result or ''}")
        if name == "autoscaler":
            self.at(self.random.uniform(3.0, 15.0), lambda: self._start_autoscaler(int(attempt) + 1))
            return
        if process.name != self._current:  # one that was replaced
            return
        if process.ended is not None and process.ended < 0 and self._attempts[name] < 2:
            self._later(lambda: self._start(name))
            return
        self.ends[name] = process.ended or 0
        self.followed_to_the_end = self.followed_to_the_end or process.result == "done"
        if name == "conclude":
            # What Kubernetes still has to do: pods go in their grace, and what is owned goes with its owner.
            self.state = "Succeeded" if self.state == "Running" else self.state
            self.faults.on = False
            self.at(60.0, self._finish)
        elif process.ended != 0:
            self.state = "Failed"
            self._later(lambda: self._start("conclude"))
        else:
            self._later(lambda: self._start(self._after(name, process.result)))

    def _after(self, name: str, result: Any) -> str:
        what, _, segment = name.partition("-")
        if what == "submit":
            return "train-1"
        if what == "train":
            return f"resize-{segment}" if result == "resized" else "conclude"
        return f"train-{int(segment) + 1}"

    def _later(self, act: Callable[[], None]) -> None:
        def unless_terminated() -> None:
            if not self.terminated or self._current.startswith("conclude"):
                act()

        self.at(self.random.uniform(1.0, 14.0), unless_terminated)

    def _terminate(self) -> None:
        """Terminate of the run: the step is killed and not retried, and the exit task runs."""
        if self._current.startswith("conclude") or self.over or "conclude" in self._attempts:
            return
        self.terminated, self.state = True, "Failed"
        self._say("the run is terminated")
        for process in self._alive():
            if not process.name.startswith("autoscaler"):
                process.kill()
        self.at(22.0, lambda: self._start("conclude"))

    def _finish(self) -> None:
        self.over = True

    def _rival(self) -> None:
        """Another team's gang comes, and goes after a while."""
        name, pods = f"rival-{next(self._numbers)}", self.random.randint(1, 4)
        container = {"name": "main", "image": "x", "command": ["sleep", "9"], "resources": {"limits": {GPU: "1"}}}
        task = {
            "name": "main",
            "replicas": pods,
            "minAvailable": pods,
            "template": {"spec": {"containers": [container]}},
        }
        spec = {"queue": "research", "minAvailable": pods, "schedulerName": "volcano", "tasks": [task]}
        job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": spec}
        self.store.create({**job, "metadata": {"name": name, "namespace": "speech"}})
        self.nodes.notice()
        self.at(self.random.uniform(10.0, 60.0), lambda: self._leave(name))

    def _leave(self, name: str) -> None:
        self.store.delete("Job", name, "speech")
        self.nodes.notice()

    # What is seen.
    def _happened(self, transition: Transition) -> None:
        new = transition.new
        if transition.kind != "Job" or new is None or new["metadata"]["namespace"] != NAMESPACE:
            return
        if transition.old is None:
            self.jobs_created += 1
        phase = str((new.get("status") or {}).get("state", {}).get("phase", ""))
        if phase not in self.job_phases[-1:]:
            self.job_phases.append(phase)
            self._say(f"Job is {phase}")
        outcomes = parse_list(ResizeOutcome, annotation(new, RESIZE))
        self.most_open = max(self.most_open, sum(not outcome.phase.final for outcome in outcomes))
        if len({outcome.id for outcome in outcomes}) != len(outcomes):
            self.problems.append(f"a request was answered twice: {outcomes}")
        if transition.old is not None and workers(new) != workers(transition.old):
            self._say(f"{workers(transition.old)} -> {workers(new)} workers")
            self.resized += 1
            before = parse_list(ResizeOutcome, annotation(transition.old, RESIZE))
            if before == outcomes:
                self.problems.append("the number of workers changed without a record")

    def job(self) -> dict[str, Any] | None:
        """The Job, where there is one."""
        namespace, name = JOB.split("/")
        try:
            return self.store.get("Job", name, namespace)
        except NotFoundError:
            return None

    def _say(self, what: str) -> None:
        self.story.append(f"{self.now - START:7.1f} {what}")
