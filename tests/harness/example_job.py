# SPDX-License-Identifier: Apache-2.0
"""A Job of an example on an embedded cluster, seen as a user of a cluster sees it."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

from kfp_volcano.schemas import names
from kfp_volcano.schemas.validation import parse, training_job
from kfp_volcano.volcano.cluster.awaiting import until
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.launcher.submit import submit
from kfp_volcano.volcano.manifests.resize import resize_patch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATIENCE_S = 570.0
"""Below the time limit of these tests, so that one which hangs shows what its pods have printed."""
T = TypeVar("T")
WORKERS = {names.CORE, names.ELASTIC}
ENDED = {"Completed", "Failed", "Terminated", "Aborted"}


class ExampleJob:
    """One Job of an example."""

    def __init__(self, cluster: EmbeddedCluster, directory: Path, spec: Path) -> None:
        self.cluster = cluster
        self._directory = directory
        self.spec = training_job(parse(spec.read_text(), source=spec.name), source=spec.name)
        job = submit(cluster, self.spec, run_id="run", step="submit", now=time.time())
        self.namespace, self.name = job["metadata"]["namespace"], job["metadata"]["name"]
        self._deadline = time.monotonic() + PATIENCE_S

    def volume(self, name: str) -> Path:
        """A file on the checkpoint volume."""
        assert self.spec.checkpoint
        folder = self.cluster.volume(self.namespace, self.spec.checkpoint.volume)
        assert folder
        return folder / name

    def logs(self) -> str:
        """What all pods have printed, those that are gone included."""
        return "\n".join(f"--- {task}\n{text}" for task, text in self.pods().items())

    def pods(self) -> dict[str, str]:
        """What each pod has printed, by its task and index: `core-0`."""
        files = sorted((self._directory / "logs" / self.namespace).glob("*.log"))
        return {file.stem.removeprefix(f"{self.name}-"): file.read_text(errors="replace") for file in files}

    def resize(self, size: int) -> None:
        """Change the number of workers; returns when the pods are as wished."""
        job = self.cluster.get("Job", self.name, self.namespace)
        self.cluster.patch("Job", self.name, self.namespace, resize_patch(job, size))

        def as_wished(pods: list[dict[str, Any]]) -> bool | None:
            found = [each for each in pods if each["metadata"]["labels"].get("volcano.sh/task-spec") in WORKERS]
            return [each["status"]["phase"] for each in found] == ["Running"] * size or None

        assert until(self.cluster, "Pod", self.namespace, as_wished, patience_s=PATIENCE_S), self.logs()

    def until_printed(self, words: str, *, times: int = 1) -> None:
        """Wait until the Job's pods have printed something so often."""
        self.until(lambda printed: printed.count(words) >= times, words)

    def until(self, seen: Callable[[str], T], what: str) -> T:
        """Wait for something in what the Job's pods have printed; what `seen` says of it."""
        while not (found := seen(self.logs())):
            assert time.monotonic() < self._deadline, f"{what!r} did not come:\n{self.logs()}"
            assert self.phase() not in ENDED, f"{self.phase()} before {what!r}:\n{self.logs()}"
            time.sleep(0.05)  # the pod is another program, its log a file: there is nothing to wait on
        return found

    def kill(self, task: str, index: int, words: str, *, rank: int | None = None) -> None:
        """SIGKILL the process of a pod whose command line holds these words, and that has this rank of torchrun's."""
        pod, found = names.pod_name(self.name, task, index), []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                env, command = process.environ(), " ".join(process.cmdline())
                ours = str(self._directory) in env.get(names.ENV_JOB_DIR, "")
                ranked = rank is None or env.get("LOCAL_RANK") == str(rank)
                if ours and env.get(names.ENV_POD) == pod and words in command and ranked:
                    found.append(process)
        assert len(found) == 1, found
        found[0].kill()

    def until_running(self, task: str, index: int) -> None:
        """Wait until a pod's container runs."""
        while "running" not in self._container(task, index).get("state", {}):
            assert time.monotonic() < self._deadline, f"{task}-{index} does not run:\n{self.logs()}"
            version = self.cluster.list("Pod", self.namespace)[1]
            if "running" not in self._container(task, index).get("state", {}):
                next(iter(self.cluster.watch("Pod", self.namespace, resource_version=version, timeout_s=5)))

    def restarts(self, task: str, index: int) -> int:
        """How often a pod's container was started again."""
        return int(self._container(task, index)["restartCount"])

    def _container(self, task: str, index: int) -> dict[str, Any]:
        pod = names.pod_name(self.name, task, index)
        found = [each for each in self.cluster.list("Pod", self.namespace)[0] if each["metadata"]["name"] == pod]
        statuses = found[0].get("status", {}).get("containerStatuses") if found else None
        return dict(statuses[0]) if statuses else {}

    def phase(self) -> str:
        """The Job's phase."""
        job = self.cluster.get("Job", self.name, self.namespace)
        return str(job.get("status", {}).get("state", {}).get("phase", ""))

    def end(self) -> str:
        """Wait for the Job's end; its phase."""
        while self.phase() not in ENDED:
            left = self._deadline - time.monotonic()
            assert left > 0, f"still {self.phase()}:\n{self.logs()}"
            version = self.cluster.list("Job", self.namespace)[1]
            if self.phase() not in ENDED:
                next(iter(self.cluster.watch("Job", self.namespace, resource_version=version, timeout_s=min(left, 5))))
        return self.phase()
