# SPDX-License-Identifier: Apache-2.0
"""An agent's decisions: when to start the command, when to stop it, and how to end."""

from __future__ import annotations

import logging
import queue
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.agent.command import CANNOT_START, Command
from kfp_volcano.elastic.agent.environment import environment
from kfp_volcano.elastic.agent.link import Link
from kfp_volcano.elastic.generations import FINISHED, LEAVING, Generation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kfp_volcano.elastic.generations import Member

__all__ = ["LEFT", "Agent"]

LEFT = 143
"""Exit code of an agent that was told to go: a pod that leaves is not one that has completed."""

_NEWS_S = 15.0
"""How long a command that failed may be one that failed because a peer went: longer than it takes a coordinator to
notice a lost member and to make a generation without it."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Agent:
    """One pod's agent; `run` it once.

    Args:
        argv: the command.
        member: who this is.
        framework: of which kind the command's environment is.
        coordinator: host of the coordinator.
        grace_s: how long the command may take to end, for its checkpoint.
        env: environment of the command beside that of the generation.
    """

    argv: Sequence[str]
    member: Member
    framework: str
    coordinator: str
    grace_s: float
    env: Mapping[str, str]
    _events: queue.SimpleQueue[tuple[str, Any]] = field(default_factory=queue.SimpleQueue)
    _command: Command | None = None
    _stopping: bool = False
    _wanted: Generation | None = None
    """The generation to start the command for, once there is no other."""
    _failure: int = 0
    """Exit code of a command that failed and may yet be explained."""
    _patience_ends: float = 0.0

    def leave(self) -> None:
        """Told to go; may be called from a signal handler."""
        self._events.put(("leave", None))

    def run(self) -> int:
        """Follow the generations until the command ends by itself, or `leave`; returns the exit code."""
        link = Link(self.coordinator, self.member, lambda generation: self._events.put(("news", generation)))
        while True:
            kind, value = self._next()
            if kind == "leave":
                link.close(LEAVING)
                return self._leave()
            if kind == "unexplained":
                link.close(LEAVING)
                return self._failure
            if kind == "news":
                self._follow(value)
            elif self._stopping:
                self._command, self._stopping = None, False
            else:
                self._command = None
                if value == 0:
                    link.close(FINISHED)
                    return 0
                self._failed(value)
            if self._command is None and self._wanted is not None:
                self._start(self._wanted)

    def _next(self) -> tuple[str, Any]:
        if not self._failure:
            return self._events.get()
        try:
            return self._events.get(timeout=max(0.0, self._patience_ends - time.monotonic()))
        except queue.Empty:
            return "unexplained", None

    def _follow(self, generation: Generation) -> None:
        """Stop what runs for another generation; the new one's is started when that has ended."""
        ours = generation.position(self.member.pod, self.member.incarnation) is not None
        _log.info(
            "generation %d: %s", generation.number, f"{len(generation.members)} pods" if ours else "without this pod"
        )
        self._wanted = generation if ours else None
        self._failure = 0
        if self._command is not None and not self._stopping:
            self._stopping = True
            self._command.stop(self.grace_s)

    def _start(self, generation: Generation) -> None:
        self._wanted = None
        env = {**self.env, **environment(generation, self.member, self.framework)}
        try:
            self._command = Command(self.argv, env, lambda code: self._events.put(("ended", code)))
        except OSError as error:
            _log.error("cannot start %s: %s", self.argv[0], error)
            self._failed(CANNOT_START)

    def _failed(self, code: int) -> None:
        _log.warning("the command ended with %d; a peer that went would explain it", code)
        self._failure, self._patience_ends = code, time.monotonic() + _NEWS_S

    def _leave(self) -> int:
        """End the command and wait for it."""
        if self._command is not None:
            if not self._stopping:
                self._command.stop(self.grace_s)
            while self._events.get()[0] != "ended":
                continue
        return LEFT
