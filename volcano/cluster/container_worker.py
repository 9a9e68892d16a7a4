# SPDX-License-Identifier: Apache-2.0
"""The life of one container: its starts, restarts and end, and what its pod's status says of it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.cluster.container_process import ContainerProcess, Exit
from kfp_volcano.volcano.model.objects import time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kfp_volcano.volcano.cluster.container import Program

__all__ = ["ContainerWorker", "Kind"]

Kind: TypeAlias = Literal["init", "sidecar", "main"]
"""Runs before the others, to its end; starts before the others and runs on; is what the pod is for."""

_FIRST_BACK_OFF_S = 0.5
_LONGEST_BACK_OFF_S = 10.0
_STABLE_AFTER_S = 60.0
_CANNOT_START = 128
_KILLED = 137
_LONGEST_MESSAGE = 2048
_MOST_LINES = 80


class ContainerWorker(threading.Thread):
    """Runs one container until it has ended for good; `run` it in the pod's thread, or `start` it beside.

    Args:
        manifest: the container.
        kind: what it is in its pod.
        policy: the pod's `restartPolicy`.
        log: what it prints is added to this file.
        env: the environment of what starts its program.
        program: what to start, resolved anew each time. Raises InvalidError.
        changed: called after each change of its status, from its thread.
    """

    def __init__(
        self,
        manifest: Mapping[str, Any],
        kind: Kind,
        policy: str,
        *,
        log: Path,
        env: Mapping[str, str],
        program: Callable[[], Program],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(name=f"container-{manifest['name']}", daemon=True)
        self.kind = kind
        self.begun = threading.Event()
        """Set when it runs for the first time, or never will."""
        self._manifest = manifest
        self._policy = policy
        self._log = log
        self._env = env
        self._program = program
        self._changed = changed
        self._state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
        self._last: dict[str, Any] = {}
        self._restarts = 0
        self._lock = threading.Lock()
        self._grace_s: float | None = None
        self._stopping = threading.Event()
        self._process: ContainerProcess | None = None

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._stopping.is_set()

    @property
    def succeeded(self) -> bool:
        """Whether it has ended, with exit code 0."""
        return bool(self._state.get("terminated", {}).get("exitCode", 1) == 0)

    def status(self) -> dict[str, Any]:
        """Its entry in the pod's status."""
        running = "running" in self._state
        return {
            "name": self._manifest["name"],
            "image": self._manifest.get("image", ""),
            "imageID": "",
            "ready": running if self.kind != "init" else self.succeeded,
            "started": running,
            "restartCount": self._restarts,
            "state": dict(self._state),
            "lastState": {"terminated": self._last} if self._last else {},
        }

    def stop(self, grace_s: float) -> None:
        """Let it end: SIGTERM, and after the grace period SIGKILL. A shorter period replaces a longer one."""
        with self._lock:
            if self._grace_s is not None and grace_s >= self._grace_s:
                return
            self._grace_s = grace_s
            self._stopping.set()
            if self._process is not None:
                self._process.stop(grace_s)
        self.begun.set()

    def run(self) -> None:
        """Start it, and again as the policy says, until it has ended for good or was stopped."""
        try:
            with self._lock:
                if self._stopping.is_set():
                    return
                self._process = process = ContainerProcess(self._log, self._env)
            try:
                self._restart_until_done(process)
            finally:
                process.close()
        finally:
            self.begun.set()

    def _restart_until_done(self, process: ContainerProcess) -> None:
        back_off_s = 0.0
        while True:
            began = time.monotonic()
            ended = self._run_once(process)
            if self._stopping.is_set() or not self._starts_again(int(ended["exitCode"])):
                self._show({"terminated": ended})
                return
            self._last = ended
            if time.monotonic() - began > _STABLE_AFTER_S:
                back_off_s = 0.0
            if back_off_s:
                message = f"back-off {back_off_s:g}s restarting failed container {self._manifest['name']}"
                self._show({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
            if self._stopping.wait(back_off_s):
                self._show({"terminated": ended})
                return
            self._restarts += 1
            back_off_s = min(max(_FIRST_BACK_OFF_S, 2 * back_off_s), _LONGEST_BACK_OFF_S)

    def _starts_again(self, code: int) -> bool:
        if self.kind == "sidecar":
            return True
        if self.kind == "init":
            return code != 0 and self._policy != "Never"
        return self._policy == "Always" or (self._policy == "OnFailure" and code != 0)

    def _run_once(self, process: ContainerProcess) -> dict[str, Any]:
        """One start and its end, as `terminated` says it."""
        started_at = time_text(time.time())
        printed = self._log.stat().st_size
        try:
            program = self._program()
        except InvalidError as error:
            with self._log.open("a") as log:
                log.write(f"{error}\n")
            return _terminated(Exit(_CANNOT_START), started_at, reason="CreateContainerConfigError", message=str(error))
        with self._lock:
            if self._stopping.is_set():  # what a kubelet says of a container that went with its pod before it began
                return _terminated(Exit(_KILLED), started_at, reason="ContainerStatusUnknown")
            process.run(program)
        self._show({"running": {"startedAt": started_at}})
        self.begun.set()
        ended = process.wait()
        reason = "Completed" if ended.code == 0 else "Error"
        return _terminated(ended, started_at, reason=reason, message=self._last_words(ended, printed))

    def _last_words(self, ended: Exit, printed: int) -> str:
        """What a container that failed printed last, where it wants that to be its message (readLastStringFromLogs)."""
        if ended.code == 0 or self._manifest.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return ""
        with self._log.open("rb") as log:
            log.seek(max(printed, self._log.stat().st_size - _LONGEST_MESSAGE))
            text = log.read().decode(errors="replace")
        return "".join(text.splitlines(keepends=True)[-_MOST_LINES:])

    def _show(self, state: dict[str, Any]) -> None:
        self._state = state
        self._changed()


def _terminated(ended: Exit, started_at: str, *, reason: str, message: str = "") -> dict[str, Any]:
    stated = {
        "exitCode": ended.code,
        "signal": ended.signal,
        "reason": reason,
        "message": message,
        "startedAt": started_at,
        "finishedAt": time_text(time.time()),
    }
    return {name: value for name, value in stated.items() if value or name == "exitCode"}
