# SPDX-License-Identifier: Apache-2.0
"""A container's shim, seen from the host: start its program, stop it, learn how it ended."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfp_volcano.volcano.cluster.container import Program

__all__ = ["ContainerProcess", "Exit"]

_SHIM = Path(__file__).with_name("shim.py")
_KILLED = 137


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended."""

    code: int
    signal: int = 0


class ContainerProcess:
    """One container's processes. Closing it, or the end of this process, ends them all at once."""

    def __init__(self, log: Path, env: Mapping[str, str]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("ab") as errors:
            self._shim = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SHIM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(env),
                start_new_session=True,
            )
        self._orders = cast("IO[bytes]", self._shim.stdin)
        self._reports = cast("IO[bytes]", self._shim.stdout)

    def run(self, program: Program) -> None:
        """Start the container's program; one at a time."""
        self._order({"run": {"argv": program.argv, "env": program.env, "cwd": str(program.cwd), "log": str(self._log)}})
        self._report()

    def wait(self) -> Exit:
        """Wait until the container has ended with all it started. A shim that is gone counts as killed."""
        report = self._report()
        return Exit(report["exited"], report["signal"]) if report else Exit(_KILLED, 9)

    def stop(self, grace_s: float) -> None:
        """Ask the container to end, and kill what is left of it after a time."""
        self._order({"stop": grace_s})

    def close(self) -> None:
        """Kill whatever is left, and wait for it."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        self._shim.wait()
        self._reports.close()

    def _order(self, order: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):  # the shim is gone: `wait` tells
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()

    def _report(self) -> dict[str, Any] | None:
        line = self._reports.readline()
        return json.loads(line) if line else None
