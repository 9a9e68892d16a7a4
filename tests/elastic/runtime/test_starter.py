# SPDX-License-Identifier: Apache-2.0
"""Torchrun within a pod, with programs that end in every way: how the pod ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kfp_volcano.elastic.runtime.starter import exit_code
from kfp_volcano.schemas import names

if TYPE_CHECKING:
    from pathlib import Path

START = (sys.executable, "-m", "kfp_volcano.elastic.runtime", "--")
POD = {
    names.ENV_COORDINATOR: "127.0.0.1",
    names.ENV_POD: "w-0",
    names.ENV_POD_IP: "127.0.0.1",
    names.ENV_PROCS: "2",
    "PET_NPROC_PER_NODE": "2",
    "PET_STANDALONE": "1",
    "PET_LOCAL_ADDR": "127.0.0.1",
    "PET_MAX_RESTARTS": "1",
}


def started(script: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*START, "/bin/sh", "-c", script], env={**os.environ, **POD}, cwd=folder)


def test_all_start_again_together_until_the_restarts_are_used_up(tmp_path: Path) -> None:
    """One that fails takes the other with it, each time; the pod ends with the code of the one that failed."""
    script = """
    echo "$LOCAL_RANK $LOCAL_WORLD_SIZE $OMP_NUM_THREADS" >> "started-$TORCHELASTIC_RESTART_COUNT"
    until [ -f "started-$TORCHELASTIC_RESTART_COUNT" ] && [ "$(wc -l < "started-$TORCHELASTIC_RESTART_COUNT")" = 2 ]
    do sleep 0.05; done
    [ "$LOCAL_RANK" = 1 ] && exit 2
    exec sleep 300
    """
    assert started(script, tmp_path).wait(120) == 2
    told = {path.name: sorted(path.read_text().splitlines()) for path in tmp_path.iterdir()}
    assert told == {f"started-{attempt}": ["0 2 1", "1 2 1"] for attempt in range(2)}


def test_sigterm_reaches_all_and_is_told(tmp_path: Path) -> None:
    """They end in their own way, the pod with 143."""
    script = """
    trap 'touch "left-$LOCAL_RANK"; exit 143' TERM
    touch "ready-$LOCAL_RANK"
    while :; do sleep 0.05; done
    """
    pod = started(script, tmp_path)
    while len(list(tmp_path.glob("ready-*"))) < 2:
        assert pod.poll() is None
    pod.send_signal(signal.SIGTERM)
    assert pod.wait(60) == 143
    assert len(list(tmp_path.glob("left-*"))) == 2


def test_a_worker_that_is_done_ends_with_0(tmp_path: Path) -> None:
    """As its processes did."""
    assert started("exit 0", tmp_path).wait(120) == 0


@pytest.mark.parametrize(("ends", "code"), [([1, -9], 137), ([2, 1], 2), ([1, 1], 1), ([-15], 143)])
def test_the_code_is_of_the_process_that_failed_first(ends: list[int], code: int) -> None:
    """What ended only because a sibling did is passed over."""
    assert exit_code(ends) == code


def test_a_wrong_environment_ends_with_2(tmp_path: Path) -> None:
    """Before any process is started."""
    done = subprocess.run(
        [*START, "touch", str(tmp_path / "started")],
        env={**os.environ, **POD, names.ENV_POD_IP: ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert names.ENV_POD_IP in done.stderr
