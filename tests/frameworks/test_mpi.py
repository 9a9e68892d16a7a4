"""MPI over ssh: each pod has its own sshd, the launcher finds them by the hosts of its Job."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="the program of this example needs mpi4py", exc_type=ImportError)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="OpenMPI is not installed (openmpi-bin)"),
    pytest.mark.skipif(
        shutil.which("sshd") is None and shutil.which("/usr/sbin/sshd") is None,
        reason="OpenSSH's server is not installed (openssh-server)",
    ),
]


def test_the_slots_of_all_workers_reduce_together(train: Any) -> None:
    """Two workers of two slots are a world of four, and the Job ends with its launcher."""
    training = train("mpi")
    assert training.end() == "Completed", training.logs()
    assert "world 4" in training.logs()
    assert "the sum is right" in training.logs()


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
