# SPDX-License-Identifier: Apache-2.0
"""MPI over ssh: each pod has its own sshd, the launcher finds them by the hosts of its Job."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("mpi4py", reason="mpi4py is not installed (extra `mpi`), or no MPI", exc_type=ImportError)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (Debian: openmpi-bin)"),
    pytest.mark.skipif(
        shutil.which("sshd") is None and shutil.which("/usr/sbin/sshd") is None,
        reason="sshd is not installed (Debian: openssh-server)",
    ),
]


def test_the_slots_of_all_workers_reduce_together(train: Any) -> None:
    """Two workers of two slots are a world of four, and the Job ends with its launcher."""
    training = train("mpi")
    assert training.end() == "Completed", training.logs()
    assert "world 4" in training.logs()
    assert "the sum is right" in training.logs()


LATE = """
apiVersion: kfp-volcano/v1
kind: TrainingJob
metadata: {name: late}
spec:
  framework: mpi
  image: registry.example/openmpi:4
  command: [mpirun, sh, -c, 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $KFP_VOLCANO_POD"']
  queue: research
  roles:
    launcher: {replicas: 1}
    worker: {replicas: 2, procs: 2, resources: {gpu: 1}}
  faults: {preflight: [sh, -c, 'until [ -e BARRIER ]; do sleep 0.2; done']}
"""


def test_the_launcher_waits_until_its_workers_answer(train: Any, tmp_path: Path) -> None:
    """Workers whose devices are still examined have no sshd yet; mpirun starts once, with all slots of each."""
    barrier = tmp_path / "examined"
    training = train("late", LATE.replace("BARRIER", str(barrier)))
    training.until_running("launcher", 0)
    barrier.touch()
    assert training.end() == "Completed", training.logs()
    begun = re.findall(r"(\d) of 4 on \S+-(core-\d)", training.logs())
    assert sorted(begun) == [("0", "core-0"), ("1", "core-0"), ("2", "core-1"), ("3", "core-1")], training.logs()
    assert training.restarts("launcher", 0) == 0


def test_mpirun_starts_again_with_the_present_hosts(train: Any) -> None:
    """From one worker to three and back, nothing of the sum lost."""
    training = train("mpi-restart")
    training.until_printed("world 2: step")
    training.resize(3)
    training.until_printed("world 6: step")
    training.resize(1)
    training.until_printed("world 2: step", times=2)
    training.volume("enough").touch()
    assert training.end() == "Completed", training.logs()
    assert "the sum is right" in training.logs()
    begun = [int(step) for step in re.findall(r"begins at step (\d+)", training.logs())]
    assert begun == sorted(begun)
