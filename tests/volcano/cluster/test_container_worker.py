# SPDX-License-Identifier: Apache-2.0
"""One container of the embedded cluster: what its status says of an end that has no program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kfp_volcano.volcano.cluster.container import Program
from kfp_volcano.volcano.cluster.container_worker import ContainerWorker

if TYPE_CHECKING:
    from pathlib import Path


def test_a_container_that_goes_with_its_pod_before_it_began_was_killed(tmp_path: Path) -> None:
    """Not one that failed: whoever looks for failures, of preflights for one, must not take it for that."""

    def program() -> Program:
        worker.stop(0)
        return Program(["sh", "-c", "exit 3"], dict(os.environ), tmp_path)

    worker = ContainerWorker(
        {"name": "worker"},
        "main",
        "OnFailure",
        log=tmp_path / "log",
        env=os.environ,
        program=program,
        changed=lambda: None,
    )
    worker.run()
    ended = worker.status()["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
