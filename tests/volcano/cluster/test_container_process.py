# SPDX-License-Identifier: Apache-2.0
"""A container's shim: containers start, end and leave nothing, whatever happens."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from kfp_volcano.volcano.cluster.container import Program
from kfp_volcano.volcano.cluster.container_process import ContainerProcess, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 30
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
os.wait()
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
print("ready", flush=True)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the container prints to."""
    return tmp_path / "log"


@pytest.fixture
def process(log: Path) -> Iterator[ContainerProcess]:
    """A shim with no container yet."""
    started = ContainerProcess(log, os.environ)
    yield started
    started.close()


def program(tmp_path: Path, *argv: str) -> Program:
    return Program(list(argv), dict(os.environ), tmp_path)


def python(tmp_path: Path, code: str, *args: str) -> Program:
    return program(tmp_path, sys.executable, "-c", code, *args)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("script", "expected"),
    [("exit 0", Exit(0)), ("exit 7", Exit(7)), ("kill -9 $$", Exit(137, 9)), ("kill -15 $$", Exit(143, 15))],
)
def test_an_exit_is_reported_as_kubernetes_does(
    process: ContainerProcess, tmp_path: Path, script: str, expected: Exit
) -> None:
    """An exit code as it is, a signal as 128 + its number."""
    process.run(program(tmp_path, "sh", "-c", script))
    assert process.wait() == expected


def test_a_program_that_is_not_there_exits_127(process: ContainerProcess, tmp_path: Path, log: Path) -> None:
    """The log says what could not be started."""
    process.run(program(tmp_path, "no-such-program"))
    assert process.wait() == Exit(127)
    assert "no-such-program" in log.read_text()


def test_starts_go_into_one_log(process: ContainerProcess, tmp_path: Path, log: Path) -> None:
    """A restart appends to the log, standard error included."""
    for word in ("one", "two"):
        process.run(program(tmp_path, "sh", "-c", f"echo {word}; echo {word} >&2"))
        assert process.wait() == Exit(0)
    assert log.read_text() == "one\none\ntwo\ntwo\n"


def test_sigterm_reaches_the_program_and_its_answer_counts(
    process: ContainerProcess, tmp_path: Path, log: Path
) -> None:
    """A program that ends itself on SIGTERM ends with its own exit code."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    process.run(program(tmp_path, "sh", "-c", f"trap 'echo asked; exit 3' TERM; echo > {ready}; sleep 600 & wait"))
    ready.read_text()
    process.stop(PATIENCE_S)
    assert process.wait() == Exit(3)
    assert log.read_text() == "asked\n"


def test_sigterm_is_never_too_early(process: ContainerProcess, tmp_path: Path) -> None:
    """A program that is stopped in the moment of its start ends by the signal, not at the end of its time."""
    for _ in range(20):
        process.run(program(tmp_path, "sleep", "600"))
        process.stop(PATIENCE_S)
        assert process.wait() == Exit(143, 15)


def test_who_ignores_sigterm_is_killed(process: ContainerProcess, tmp_path: Path) -> None:
    """After the grace period SIGKILL ends the container."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    process.run(program(tmp_path, "sh", "-c", f"trap '' TERM; echo > {ready}; while true; do sleep 1; done"))
    ready.read_text()
    process.stop(0.2)
    assert process.wait() == Exit(137, 9)


def test_a_daemon_ends_with_its_container(process: ContainerProcess, tmp_path: Path) -> None:
    """What has left the process group and its parent is found all the same, before the exit is reported."""
    pid_file = tmp_path / "pid"
    process.run(python(tmp_path, DAEMON, str(pid_file)))
    assert process.wait() == Exit(0)
    assert not alive(int(pid_file.read_text()))


def test_closing_kills_everything_at_once(log: Path, tmp_path: Path) -> None:
    """The host's end of the pipe is what keeps a pod alive."""
    process = ContainerProcess(log, os.environ)
    pid_file, ready = tmp_path / "pid", tmp_path / "ready"
    os.mkfifo(ready)
    process.run(python(tmp_path, f"{DAEMON}\nopen({str(ready)!r}, 'w').close()\ntime.sleep(600)", str(pid_file)))
    ready.read_text()
    daemon = int(pid_file.read_text())
    assert alive(daemon)
    process.close()
    assert not alive(daemon)


def test_a_killed_shim_takes_its_program_along(process: ContainerProcess, tmp_path: Path) -> None:
    """The kernel kills the program when the shim is killed, and the host counts it as killed."""
    pid_file, ready = tmp_path / "pid", tmp_path / "ready"
    os.mkfifo(ready)
    process.run(program(tmp_path, "sh", "-c", f"echo $$ > {pid_file}; echo > {ready}; exec sleep 600"))
    ready.read_text()
    main = psutil.Process(int(pid_file.read_text()))
    main.parent().send_signal(signal.SIGKILL)
    assert process.wait() == Exit(137, 9)
    main.wait(PATIENCE_S)


def test_a_container_cannot_reach_the_hosts_pipes(process: ContainerProcess, tmp_path: Path, log: Path) -> None:
    """Only the three standard streams are open in a container, so none of its processes keeps the shim alive."""
    process.run(python(tmp_path, "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])"))
    assert process.wait() == Exit(0)
    assert log.read_text() == "[0, 1, 2, 3]\n"  # 3 is the listing itself
