# SPDX-License-Identifier: Apache-2.0
"""One Job of a script on an embedded cluster of its own, and what a person could do to it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kfp_volcano.errors import NotFoundError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.schemas.validation import training_job
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.rehearsal.paced import open_gate
from kfp_volcano.volcano.launcher.rehearsal.verdict import RehearsalError
from kfp_volcano.volcano.launcher.submit import submit
from kfp_volcano.volcano.manifests.resize import resize_patch
from kfp_volcano.volcano.manifests.status import JobState, job_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["PACED", "Stage", "last_lines"]

PACED = "kfp_volcano.volcano.launcher.rehearsal.paced"
_LOOK_S = 0.1
_SHOWN_LINES = 15
T = TypeVar("T")


class Stage:
    """A cluster in a folder, with one Job on it at a time.

    Args:
        folder: everything goes there: volumes, logs, what processes say of themselves.
        script: what to train; its own folder is the working directory.
        arguments: of the script.
        strategy: `live` or `restart`.
        workers: the fewest and the most.
        grace_s: how long a process has to leave.
        deadline: when to give up, by `time.monotonic`.
        tell: for whoever waits: what goes on.
    """

    def __init__(
        self,
        folder: Path,
        script: Path,
        arguments: Sequence[str],
        *,
        strategy: str,
        workers: tuple[int, int],
        grace_s: float,
        deadline: float,
        tell: Callable[[str], None],
    ) -> None:
        self.folder, self.script, self.tell = folder, script.absolute(), tell
        self.least, self.most = workers
        self._deadline = deadline
        least, most = workers
        self.spec = training_job(
            {
                "apiVersion": "kfp-volcano/v1",
                "kind": "TrainingJob",
                "metadata": {"name": "rehearsal", "namespace": "rehearsal"},
                "spec": {
                    "framework": "pytorch",
                    "image": "none",
                    "command": ["python", "-m", PACED, strategy, str(folder), str(self.script), *arguments],
                    "queue": "default",
                    "roles": {
                        "worker": {
                            "replicas": {"min": least, "max": most, "initial": least},
                            "resources": {"cpu": 1, "memory": "1Gi", "gpu": 1},
                        }
                    },
                    "elasticity": {"strategy": strategy, "grace": f"{grace_s:.0f}s"},
                    "checkpoint": {"volume": "checkpoints", "every": "1h"},
                },
            }
        )
        self.cluster = EmbeddedCluster(folder, nodes=f"1x{most}", queues=("default",), workdir=self.script.parent)
        self._name = ""

    def close(self) -> None:
        """Ends everything; nothing is left running."""
        self.cluster.shutdown(grace_s=0)

    @property
    def job_dir(self) -> Path:
        """The Job's folder on the volume."""
        assert self.spec.checkpoint is not None  # noqa: S101 - the spec above has one
        return self.cluster.volume(self.spec.namespace, self.spec.checkpoint.volume) / self._name  # type: ignore[operator]

    def submit(self) -> None:
        """Starts the Job, or starts it again with its checkpoints."""
        job = submit(self.cluster, self.spec, run_id="rehearsal", step="rehearsal", now=time.time())
        self._name = job["metadata"]["name"]

    def open(self, upto: int | None, pace_s: float = 0.0) -> float:
        """Opens the gate up to a step; when, in Unix seconds."""
        open_gate(self.folder, upto=upto, pace_s=pace_s)
        return time.time()

    def resize(self, size: int) -> None:
        """Changes the number of workers; their pods are started or stopped from then on."""
        self.tell(f"resizing to {counted(size, 'worker')}")
        job = self.cluster.get("Job", self._name, self.spec.namespace)
        self.cluster.patch("Job", self._name, self.spec.namespace, resize_patch(job, size))

    def kill(self, pod: str) -> int:
        """SIGKILLs the script's process in a pod; how many processes that were."""
        self.tell(f"killing the worker in {pod}")
        found = [pid for pid in _processes_of(pod, self.folder) if PACED in _text(Path(f"/proc/{pid}/cmdline"))]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def stop(self) -> None:
        """Ends the Job as a cluster does that needs the room: SIGTERM, the grace time; its volume stays."""
        self.tell("stopping the whole Job")
        self.cluster.delete("Job", self._name, self.spec.namespace)
        self.until(self._gone, "the Job's pods to leave", alive=False)

    def until(self, seen: Callable[[], T], what: str, *, alive: bool = True) -> T:
        """Waits for something; what `seen` says of it.

        Raises RehearsalError where the Job ends before it (unless it need not be `alive`), or the time is over.
        """
        while not (found := seen()):
            if alive and self.state() is JobState.FAILED:
                raise RehearsalError(f"the script failed while waiting for {what}:\n{self.last_words()}")
            if self._left() <= 0:
                raise RehearsalError(f"the time was over while waiting for {what} (--timeout):\n{self.last_words()}")
            time.sleep(_LOOK_S)
        return found

    def state(self) -> JobState:
        """The Job's state."""
        return job_state(self.cluster.get("Job", self._name, self.spec.namespace))

    def pods(self) -> list[str]:
        """The workers' pods, by name."""
        pods, _ = self.cluster.list("Pod", self.spec.namespace)
        found = [str(pod["metadata"]["name"]) for pod in pods if pod["metadata"]["name"].startswith(self._name)]
        return sorted(name for name in found if f"-{names.COORDINATOR}-" not in name)

    def last_words(self) -> str:
        """The last lines that workers have printed: of the pod that printed last."""
        logs = sorted((self.folder / "logs").rglob("*.log"), key=lambda path: path.stat().st_mtime)
        workers = [path for path in logs if f"-{names.COORDINATOR}-" not in path.name]
        told = [path for path in workers if "Traceback" in _text(path)] or workers
        return last_lines(told[-1]) if told else "(nothing was printed)"

    def _gone(self) -> bool:
        try:
            self.cluster.get("Job", self._name, self.spec.namespace)
        except NotFoundError:
            return not self.cluster.list("Pod", self.spec.namespace)[0]
        return False

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


def last_lines(path: Path) -> str:
    """The last lines of a log, indented."""
    return "\n".join(f"    | {line}" for line in _text(path).splitlines()[-_SHOWN_LINES:])


def _processes_of(pod: str, folder: Path) -> list[int]:
    """The processes of a pod of the cluster in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            environment = _text(entry / "environ").split("\0")
            if f"{names.ENV_POD}={pod}" in environment and str(folder) in " ".join(environment):
                found.append(int(entry.name))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # a process that has ended meanwhile, or is another user's
        return ""
