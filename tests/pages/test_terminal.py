# SPDX-License-Identifier: Apache-2.0
"""`kfp-volcano top` in a real terminal: steady at any size, in colour or not, and quiet when its reader goes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from kfp_volcano.volcano.cluster.host import RemoteCluster, start_host, stop_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
COLOUR = re.compile(r"\x1b\[[0-9;]*(?<![0-9])(3[0-8]|4[0-8]|9[0-7]|10[0-7])(?=[;m])")
TOP = f"{shlex.quote(sys.executable)} -P -m kfp_volcano top"


class Terminal:
    """A window of tmux's own server."""

    def __init__(self, width: int, height: int, command: str, env: dict[str, str]) -> None:
        self._server = f"kfp-volcano-{uuid.uuid4().hex[:8]}"
        size = ("-x", str(width), "-y", str(height))
        self.tmux("new-session", "-d", *size, command, env=env)

    def tmux(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        """Asks tmux."""
        command = ["tmux", "-f", os.devnull, "-L", self._server, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout

    def lines(self, *options: str) -> list[str]:
        """What is on the screen."""
        return self.tmux("capture-pane", "-p", *options).splitlines()

    def until(self, condition: Callable[[list[str]], object], *options: str) -> list[str]:
        """The screen once it is so."""
        ends = time.monotonic() + PATIENCE_S
        while not condition(found := self.lines(*options)):
            assert time.monotonic() < ends, "\n".join(found)
        return found

    def close(self) -> None:
        """End it and all in it."""
        subprocess.run(["tmux", "-L", self._server, "kill-server"], check=False, capture_output=True)


@pytest.fixture(scope="module", name="env")
def _env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """That of a process that reaches an embedded cluster on which three trainings are."""
    if shutil.which("tmux") is None:
        pytest.skip("there is no tmux (Debian: apt-get install tmux)")
    before = dict(os.environ)
    address = start_host(tmp_path_factory.mktemp("host"))
    cluster = RemoteCluster(address)
    for name in ("a-training-whose-name-is-rather-long-for-a-terminal", "digits", "waits"):
        cluster.create(job(name, 20 if name == "waits" else 2))
    yield {**os.environ, "KFP_VOLCANO_CLUSTER": f"embedded:{address}", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    stop_host(grace_s=0)
    os.environ.clear()
    os.environ.update(before)


def job(name: str, pods: int) -> dict[str, Any]:
    """A Job that runs until it is ended."""
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "unused", "command": ["sleep", "600"], "resources": limits}
    task = {"name": "core", "replicas": pods, "template": {"spec": {"containers": [container]}}}
    spec = {"queue": "research", "minAvailable": pods, "tasks": [task]}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(name="terminal")
def _terminal(env: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def terminal(width: int, height: int, **more: str) -> Terminal:
        # tmux has a TERM of its own for what it starts.
        said = "".join(f"{name}={value} " for name, value in more.items())
        opened.append(Terminal(width, height, f"env {said}{TOP}", env))
        return opened[-1]

    yield terminal
    for each in opened:
        each.close()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50)])
def test_it_fits_and_stands_still(terminal: Callable[..., Terminal], width: int, height: int) -> None:
    """No line wraps, nothing scrolls, and what is on a line stays there from picture to picture."""
    screen = terminal(width, height)
    first = screen.until(lambda lines: any("research" in line for line in lines))
    assert len(first) <= height
    assert all(len(line) <= width for line in first)
    rows = [next(at for at, line in enumerate(first) if word in line) for word in ("QUEUE", "JOB")]
    second = screen.until(lambda lines: lines != first)  # ages go on
    assert [next(at for at, line in enumerate(second) if word in line) for word in ("QUEUE", "JOB")] == rows


def test_it_follows_the_terminal_s_size(terminal: Callable[..., Terminal]) -> None:
    """Made smaller while it runs, it still fits."""
    screen = terminal(160, 40)
    screen.until(lambda lines: any("research" in line for line in lines))
    screen.tmux("resize-window", "-x", "80", "-y", "24")
    found = screen.until(lambda lines: len(lines) <= 24 and any("research" in line for line in lines))
    assert all(len(line) <= 80 for line in found)


def test_it_needs_no_colour(terminal: Callable[..., Terminal]) -> None:
    """What is to be seen is said in words; a heading may be bold."""
    found = terminal(120, 40).until(lambda lines: any("research" in line for line in lines), "-e")
    assert [line for line in found if COLOUR.search(line)] == []


def test_a_dumb_terminal_gets_lines(terminal: Callable[..., Terminal]) -> None:
    """Nothing is drawn over anything."""
    found = terminal(120, 40, TERM="dumb").until(lambda lines: any(line.count("research") for line in lines))
    assert any(re.match(r"\d\d:\d\d:\d\d (queue|job) ", line) for line in found)


def test_a_reader_that_goes_ends_it(env: dict[str, str], tmp_path: Path) -> None:
    """`top | head -1`: a line, and no more."""
    line = f"{TOP} 2>{tmp_path}/errors | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, env=env, timeout=PATIENCE_S)
    assert len(done.stdout.splitlines()) == 1
    assert (tmp_path / "errors").read_text() == ""
