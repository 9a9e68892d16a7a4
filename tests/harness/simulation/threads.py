# SPDX-License-Identifier: Apache-2.0
"""Threads that take turns, in a time that passes only while all of them wait: the same run each time.

`Turns` stands in for the module `threading` in a process of the simulation, as far as this project uses it. Only one
thread runs at a time, and another one only when it waits; so locks need not lock.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

__all__ = ["Killed", "Turns"]


class Killed(BaseException):
    """The process of this thread has been killed: nothing it does from now on is seen by anybody."""


class _Thread:
    """One of the threads, and what it waits for."""

    def __init__(self, group: object = None) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.deadline = math.inf
        self.alive = True
        self.group = group
        """The process it belongs to, where there are several."""
        self.killed = False


class Turns:
    """Whose turn it is, and what time.

    Args:
        now: The time at the beginning, Unix seconds.
        sleep: Lets time pass outside, at most until the time it is given; returns the time then, and what has news.
        failed: Is told of an error that ends a thread.
    """

    def __init__(
        self,
        now: float,
        sleep: Callable[[float], tuple[float, Iterable[int]]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.now = now
        self._sleep = sleep
        self._failed = failed
        self._current = _Thread()
        self._threads: list[_Thread] = []
        self._ready: deque[_Thread] = deque()
        self._parked: dict[_Thread, None] = {}
        self._readers: dict[int, _Thread] = {}
        self.Thread = partial(_VirtualThread, self)
        self.Event = partial(_Event, self)
        self.Condition = partial(_Condition, self)
        self.Lock = _Lock

    # In place of the module `time`.
    def time(self) -> float:
        """Unix seconds."""
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        """Wait."""
        deadline = self.now + seconds
        while self.now < deadline:
            self.park(deadline)

    # The turns.
    def park(self, deadline: float) -> None:
        """Let others run until somebody wakes this thread, or it is time. Raises Killed where it has been killed."""
        me = self._current
        if not me.killed:
            me.deadline = deadline
            self._parked[me] = None
            self._pass_on()
            me.baton.acquire()
        if me.killed:
            raise Killed

    def wake(self, waiting: list[_Thread]) -> None:
        """Let threads run that wait; empties the list."""
        for thread in waiting:
            self._make_ready(thread)
        waiting.clear()

    def kill(self, group: object) -> None:
        """Kill all threads of a group; one that does this to itself goes on to where it waits next."""
        self._threads = [thread for thread in self._threads if thread.alive]
        for thread in self._threads:
            if thread.group is group:
                thread.killed = True
                self._make_ready(thread)

    @property
    def group(self) -> object:
        """That of the thread whose turn it is."""
        return self._current.group

    def await_news(self, stream: int, deadline: float) -> None:
        """Wait for news of a stream."""
        self._readers[stream] = self._current
        self.park(deadline)
        self._readers.pop(stream, None)

    def _make_ready(self, thread: _Thread) -> None:
        if thread in self._parked:
            del self._parked[thread]
            self._ready.append(thread)

    def _pass_on(self) -> None:
        while not self._ready:
            until = min((thread.deadline for thread in self._parked), default=math.inf)
            self.now, news = self._sleep(until)
            for stream in news:
                if stream in self._readers:
                    self._make_ready(self._readers[stream])
            for thread in [each for each in self._parked if each.deadline <= self.now]:
                self._make_ready(thread)
        self._current = self._ready.popleft()
        self._current.baton.release()


class _VirtualThread:
    def __init__(
        self,
        turns: Turns,
        target: Callable[..., None],
        args: tuple[Any, ...] = (),
        group: object = None,
        **_: object,
    ) -> None:
        self._turns = turns
        self._target, self._args = target, args
        self._thread = _Thread(group or turns.group)
        self._done = _Event(turns)

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self._turns._threads.append(self._thread)
        self._turns._ready.append(self._thread)

    def is_alive(self) -> bool:
        return self._thread.alive

    def join(self, timeout: float | None = None) -> None:
        self._done.wait(timeout)

    def _run(self) -> None:
        self._thread.baton.acquire()
        try:
            if not self._thread.killed:
                self._target(*self._args)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  # whatever ends a thread is a fault
            self._turns._failed(error)
        self._thread.alive = False
        self._done.set()
        self._turns._pass_on()


class _Event:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._set = False
        self._waiting: list[_Thread] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._turns.wake(self._waiting)

    def wait(self, timeout: float | None = None) -> bool:
        deadline = math.inf if timeout is None else self._turns.now + timeout
        while not self._set and self._turns.now < deadline:
            self._waiting.append(self._turns._current)
            self._turns.park(deadline)
        return self._set


class _Condition:
    def __init__(self, turns: Turns, lock: object = None) -> None:
        self._turns = turns
        self._waiting: list[_Thread] = []

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None: ...

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline = math.inf if timeout is None else self._turns.now + timeout
        while not (found := predicate()) and self._turns.now < deadline:
            self._waiting.append(self._turns._current)
            self._turns.park(deadline)
        return found

    def notify_all(self) -> None:
        self._turns.wake(self._waiting)


class _Lock:
    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None: ...
