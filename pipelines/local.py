# SPDX-License-Identifier: Apache-2.0
"""Run a pipeline on this machine: an embedded cluster, the pipeline in a process of its own, a view of both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.names import ENV_CLUSTER, ENV_OUT, ENV_RUN_ID
from kfp_volcano.volcano.cluster.connect import connect
from kfp_volcano.volcano.cluster.host import start_host, stop_host
from kfp_volcano.volcano.cluster.informer import Informer
from kfp_volcano.volcano.cluster.logical_nodes import parse_nodes
from kfp_volcano.volcano.launcher.display import displaying
from kfp_volcano.volcano.launcher.folder import FIRST
from kfp_volcano.volcano.launcher.overview import overview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from rich.console import Console

    from kfp_volcano.volcano.cluster.base import Cluster

    Companion = Callable[[Cluster, threading.Event], None]

__all__ = ["LocalRun", "Outcome", "run_locally"]

LOOK_S = 0.5
"""How often the end of the pipeline's process is looked for."""
_ENDING = (signal.SIGINT, signal.SIGTERM)
GRACE_S = 3.0
"""How long the pipeline's process has to end when it is told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """What to run and where."""

    path: Path
    name: str | None
    values: dict[str, Any]
    out: Path
    run_id: str
    nodes: str = "2x4"
    """Logical nodes, see `parse_nodes`."""
    queues: tuple[str, ...] = ("default", "research")
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Folders in place of volume claims, by the claim's name."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    exit_code: int
    message: str = ""


def run_locally(
    run: LocalRun,
    *,
    console: Console,
    clock: Callable[[], float] = time.time,
    companion: Companion | None = None,
) -> Outcome:
    """Run a pipeline to its end; nothing of it is left running, however that comes.

    `companion` goes on beside it, in a thread, until the event it is given is set: in the demo, another team.

    Raises:
        SpecError: The output folder cannot be used.
        ClusterError: The embedded cluster could not be started.
        KeyboardInterrupt: Interrupted; everything has been ended.
    """
    _prepare(run.out)
    started_at = clock()
    parse_nodes(run.nodes)
    interruption = _Interruption()
    with interruption.armed():
        address = start_host(directory=run.out, nodes=run.nodes, queues=run.queues, volumes=dict(run.volumes))
        interruption.arm()
        try:
            return _run(run, address, console, started_at, clock, companion, interruption)
        finally:
            stop_host()


def _run(
    run: LocalRun,
    address: str,
    console: Console,
    started_at: float,
    clock: Callable[[], float],
    companion: Companion | None,
    interruption: _Interruption,
) -> Outcome:
    os.environ[ENV_CLUSTER] = f"embedded:{address}"
    cluster = connect()
    over = threading.Event()
    beside = threading.Thread(target=companion, args=(cluster, over), daemon=True) if companion else None
    informer = Informer(cluster, ("Job", "PodGroup", "Pod", "Node"))
    informer.start()
    try:
        with _pipeline(run) as process, displaying(console, started_at=started_at, clock=clock) as show:
            if beside:
                beside.start()
            version = 0
            while process.poll() is None:
                interruption.check()
                version = informer.wait(version, timeout_s=LOOK_S)
                kinds = {kind: informer.objects(kind) for kind in ("Job", "PodGroup", "Pod", "Node")}
                show(overview(kinds, run_id=run.run_id, queue=run.queues[-1]))
    finally:
        over.set()
        informer.stop()
        if beside and beside.is_alive():
            beside.join(timeout=GRACE_S)
    return _outcome(run, process.returncode)


def _outcome(run: LocalRun, returncode: int) -> Outcome:
    error = run.out / "error.json"
    if error.exists():
        record = json.loads(error.read_text(encoding="utf-8"))
        return Outcome(int(record["exit_code"]), f"{record['step']}: {record['message']}")
    if returncode == 0:
        return Outcome(0)
    return Outcome(1, f"the pipeline failed; {run.out / 'pipeline.log'} tells where")


def _prepare(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in ("error.json", FIRST):
            (out / name).unlink(missing_ok=True)
        with (out / "pipeline.log").open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise SpecError(f"cannot be written to: {error.strerror}", source=f"--out {out}") from error


@contextmanager
def _pipeline(run: LocalRun) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline's process, in a group of its own, which ends with this block."""
    order = {
        "path": str(run.path.resolve()),
        "name": run.name,
        "values": run.values,
        "root": str(run.out / "artifacts"),
    }
    environment = {**os.environ, ENV_OUT: str(run.out.resolve()), ENV_RUN_ID: run.run_id, "NO_COLOR": "1"}
    with (run.out / "pipeline.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kfp_volcano.pipelines.running"]
            if sys.version_info >= (3, 11)
            else [sys.executable, "-m", "kfp_volcano.pipelines.running"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    assert process.stdin is not None  # noqa: S101 - it was asked for
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _kill_group(process.pid)


def _kill_group(group: int) -> None:
    """End what a dead process leaves behind in its group: a step that was running."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


class _Interruption:
    """Ctrl-C and SIGTERM, which both end the run.

    The signal is remembered as well as raised: an exception that comes while Python collects garbage is swallowed.
    """

    def __init__(self) -> None:
        self._came = False

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Take the two signals for the time of the block."""
        before = {number: signal.getsignal(number) for number in _ENDING}
        self.arm()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def arm(self) -> None:
        """See to the signals, also after Ray has put a handler of its own in place."""
        for number in _ENDING:
            signal.signal(number, self._interrupt)

    def check(self) -> None:
        """Raise KeyboardInterrupt if one of the signals has come."""
        if self._came:
            raise KeyboardInterrupt

    def _interrupt(self, _signal: int, _frame: object) -> None:
        self._came = True
        raise KeyboardInterrupt
