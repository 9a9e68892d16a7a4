# SPDX-License-Identifier: Apache-2.0
"""A SIGTERM takes the Job along where the run was terminated, and only there."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

STEP = """
import json, sys, threading
from kfp_volcano.errors import ForbiddenError, NotFoundError
from kfp_volcano.volcano.launcher.reference import JobRef
from kfp_volcano.volcano.launcher.termination import ended_with_its_run

owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "run-x", "uid": "u"}
pod = {"metadata": {"name": "step", "namespace": "kubeflow", "ownerReferences": [owner]}}

class Cluster:
    def get(self, kind, name, namespace):
        assert (kind, name, namespace) == ("Workflow", "run-x", "kubeflow"), (kind, name, namespace)
        if sys.argv[1] == "forbidden":
            raise ForbiddenError("workflows")
        if sys.argv[1] == "absent":
            raise NotFoundError("run-x")
        return json.loads(sys.argv[1])

    def delete(self, kind, name, namespace):
        open(sys.argv[2], "w").write(f"{kind} {namespace}/{name}")

with ended_with_its_run(Cluster, JobRef("vision", "digits-1"), pod):
    print("ready", flush=True)
    held = threading.Lock()
    held.acquire()
    held.acquire(timeout=60)
"""


@pytest.mark.parametrize(
    ("workflow", "deleted"),
    [
        ('{"metadata": {}, "spec": {"activeDeadlineSeconds": 0}}', True),
        ('{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}', True),
        ("absent", True),
        ('{"metadata": {}, "spec": {}}', False),
        ('{"metadata": {}, "spec": {"activeDeadlineSeconds": 3600}}', False),
        ("forbidden", False),
    ],
)
def test_the_workflow_says_what_a_sigterm_is_about(workflow: str, deleted: bool, tmp_path: Path) -> None:
    """Terminated or deleted, the Job goes; a step whose pod is lost leaves it alone. The step ends either way."""
    gone = tmp_path / "gone"
    step = subprocess.Popen([sys.executable, "-c", STEP, workflow, str(gone)], stdout=subprocess.PIPE, text=True)
    with step:
        assert step.stdout is not None
        assert step.stdout.readline() == "ready\n"
        step.stdout.close()  # as when the launcher is dead: a print would raise
        step.send_signal(signal.SIGTERM)
        assert step.wait(60) == 128 + signal.SIGTERM
    assert (gone.read_text() if gone.exists() else None) == ("Job vision/digits-1" if deleted else None)


def test_a_step_that_ends_by_itself_takes_nothing_along(tmp_path: Path) -> None:
    """The block is left with its thread gone and the signal as it was."""
    script = STEP.replace("held.acquire(timeout=60)", "")
    script += "\nimport signal\nassert threading.active_count() == 1\n"
    script += "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
    ended = subprocess.run([sys.executable, "-c", script, "forbidden", str(tmp_path / "gone")], check=False)
    assert ended.returncode == 0
    assert not (tmp_path / "gone").exists()
