"""The life of one pod: its containers' starts, restarts and ends, and what its status says of them."""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.errors import InvalidError
from kfp_volcano.volcano.cluster.container import Program, build_program, with_addresses
from kfp_volcano.volcano.cluster.pod_process import Exit, PodProcess
from kfp_volcano.volcano.model.objects import key_of, status_of, terminating, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kfp_volcano.volcano.cluster.addresses import AddressBook
    from kfp_volcano.volcano.cluster.base import Manifest
    from kfp_volcano.volcano.cluster.store import Store
    from kfp_volcano.volcano.cluster.volumes import Volumes

__all__ = ["Machine", "PodWorker"]

_FIRST_BACK_OFF_S = 0.5
_LONGEST_BACK_OFF_S = 10.0
_STABLE_AFTER_S = 60.0
_CANNOT_START = 128


@dataclass(frozen=True, slots=True)
class Machine:
    """What all pods of a cluster share."""

    store: Store
    addresses: AddressBook
    volumes: Volumes
    logs: Path
    workdir: Path
    interpreter: str
    env_of: Callable[[Manifest], Mapping[str, str]]
    """The environment that a pod's processes get before their own."""

    def log_of(self, namespace: str, pod: str) -> Path:
        """The file with everything that pods of this name have printed."""
        return self.logs / namespace / f"{pod}.log"


@dataclass(slots=True)
class _Container:
    """One container and how often it has been started."""

    manifest: Manifest
    init: bool
    restarts: int = 0
    last: dict[str, Any] = field(default_factory=dict)
    """Its last end, as `lastState` says it."""

    def status(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Its entry in the pod's status."""
        return {
            "name": self.manifest["name"],
            "image": self.manifest.get("image", ""),
            "imageID": "",
            "ready": "running" in state or (self.init and not state.get("terminated", {}).get("exitCode", 1)),
            "started": "running" in state,
            "restartCount": self.restarts,
            "state": dict(state),
            "lastState": {"terminated": self.last} if self.last else {},
        }


class PodWorker(threading.Thread):
    """Runs one pod from its binding to a node until it has ended or gone."""

    def __init__(self, machine: Machine, pod: Manifest) -> None:
        super().__init__(name=f"pod-{pod['metadata']['name']}", daemon=True)
        self._machine = machine
        self._pod = pod
        self.namespace = str(pod["metadata"]["namespace"])
        self._lock = threading.Lock()
        self._grace_s: float | None = None
        self._stopping = threading.Event()
        self._process: PodProcess | None = None

    def stop(self, grace_s: float) -> None:
        """Let the pod end: SIGTERM, and after the grace period SIGKILL. A shorter period replaces a longer one."""
        with self._lock:
            if self._grace_s is not None and grace_s >= self._grace_s:
                return
            self._grace_s = grace_s
            self._stopping.set()
            if self._process is not None:
                self._process.stop(grace_s)

    def refresh(self, config: str) -> None:
        """A ConfigMap has changed; the kubelet brings it to the pods that have it as files."""
        if self._process is not None and not self._stopping.is_set():
            self._machine.volumes.refresh(self._pod, config, self._files)

    def run(self) -> None:
        """Start the pod, follow it to its end, and say so."""
        namespace, name = key_of(self._pod)
        self._revise(
            {
                "podIP": self._machine.addresses.address((namespace, name)),
                "hostIP": "127.0.0.1",
                "startTime": time_text(time.time()),
            }
        )
        try:
            phase = self._live(self._machine.log_of(namespace, name))
            self._revise({"phase": phase})
        finally:
            self._machine.volumes.discard(self._pod)
            self._leave()

    def _live(self, log: Path) -> str:
        """The pod's processes, from first to last; returns its last phase."""
        with self._lock:
            if self._stopping.is_set():
                return "Failed"
            self._process = process = PodProcess(log, self._machine.env_of(self._pod))
        try:
            spec = self._pod["spec"]
            for manifest in spec.get("initContainers") or ():
                if self._run_to_end(process, _Container(manifest, init=True)):
                    return "Failed"
            code = self._run_to_end(process, _Container(spec["containers"][0], init=False))
            return "Failed" if code else "Succeeded"
        finally:
            process.close()

    def _leave(self) -> None:
        """A pod that was asked to go is gone once its processes are."""
        key = key_of(self._pod)
        with self._machine.store.transaction() as (world, now):
            current = world.objects.get("Pod", {}).get(key)
            if current and current["metadata"]["uid"] == self._pod["metadata"]["uid"] and terminating(current):
                world.remove("Pod", key, now)

    def _run_to_end(self, process: PodProcess, container: _Container) -> int:
        """A container with its restarts, until it has ended for good or the pod is stopped; its exit code."""
        back_off_s = 0.0
        while True:
            began = time.monotonic()
            ended = self._run_once(process, container)
            code = int(ended["exitCode"])
            if self._stopping.is_set() or not self._starts_again(container, code):
                self._show(container, {"terminated": ended})
                return code
            container.last = ended
            if time.monotonic() - began > _STABLE_AFTER_S:
                back_off_s = 0.0
            if back_off_s:
                message = f"back-off {back_off_s:g}s restarting failed container"
                self._show(container, {"waiting": {"reason": "CrashLoopBackOff", "message": message}})
            if self._stopping.wait(back_off_s):
                self._show(container, {"terminated": ended})
                return code
            container.restarts += 1
            back_off_s = min(max(_FIRST_BACK_OFF_S, 2 * back_off_s), _LONGEST_BACK_OFF_S)

    def _run_once(self, process: PodProcess, container: _Container) -> dict[str, Any]:
        """One start of a container and its end, as `terminated` says it."""
        started_at = time_text(time.time())
        try:
            program = self._program(container.manifest)
        except InvalidError as error:
            self._print(str(error))
            return _terminated(Exit(_CANNOT_START), started_at, reason="CreateContainerConfigError", message=str(error))
        ended = self._execute(process, container, program, started_at)
        return _terminated(ended, started_at, reason="Completed" if ended.code == 0 else "Error")

    def _execute(self, process: PodProcess, container: _Container, program: Program, started_at: str) -> Exit:
        with self._lock:
            if self._stopping.is_set():
                return Exit(_CANNOT_START)
            process.run(program)
        self._show(container, {"running": {"startedAt": started_at}})
        return process.wait()

    def _program(self, manifest: Manifest) -> Program:
        namespace = self._pod["metadata"]["namespace"]
        return build_program(
            self._pod,
            manifest,
            base_env=self._machine.env_of(self._pod),
            mounts=self._machine.volumes.prepare(self._pod, manifest, self._files),
            workdir=self._machine.workdir,
            interpreter=self._machine.interpreter,
            address_of=self._address_of,
            port_of=lambda name: self._machine.addresses.port((namespace, name)),
            read_data=self._data,
        )

    def _data(self, kind: str, name: str) -> Mapping[str, str] | None:
        with self._machine.store.transaction() as (world, _):
            found = world.objects.get(kind, {}).get((self._pod["metadata"]["namespace"], name))
        if found is None:
            return None
        data = found.get("data") or {}
        return data if kind == "ConfigMap" else {key: b64decode(text).decode() for key, text in data.items()}

    def _files(self, kind: str, name: str) -> Mapping[str, str] | None:
        """What a volume of a ConfigMap or Secret holds; there is no DNS, so Volcano's lists of hosts are addresses."""
        data = self._data(kind, name)
        if data is None or kind != "ConfigMap":
            return data
        return {key: with_addresses(text, self._pod, self._address_of) for key, text in data.items()}

    def _address_of(self, name: str) -> str:
        return self._machine.addresses.address((self._pod["metadata"]["namespace"], name))

    def _starts_again(self, container: _Container, code: int) -> bool:
        policy = self._pod["spec"].get("restartPolicy", "Always")
        if container.init:
            return code != 0 and policy != "Never"
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    def _show(self, container: _Container, state: Mapping[str, Any]) -> None:
        """Put a container's state into the pod's status; a pod whose main container runs is Running."""
        field_name = "initContainerStatuses" if container.init else "containerStatuses"
        entry = container.status(state)
        others = [each for each in status_of(self._pod).get(field_name) or () if each["name"] != entry["name"]]
        changes: dict[str, Any] = {field_name: [*others, entry]}
        if not container.init:
            ready = "True" if entry["ready"] else "False"
            kept = [each for each in status_of(self._pod).get("conditions") or () if each["type"] != "Ready"]
            changes["conditions"] = [
                *kept,
                {"type": "Ready", "status": ready, "lastTransitionTime": time_text(time.time())},
            ]
            if "running" in state:
                changes["phase"] = "Running"
        self._revise(changes)

    def _revise(self, changes: Mapping[str, Any]) -> None:
        """Change the pod's status, if it is still there."""
        uid = self._pod["metadata"]["uid"]
        revised = self._machine.store.revise(
            "Pod", key_of(self._pod), uid, lambda pod: {**pod, "status": {**status_of(pod), **changes}}
        )
        self._pod = revised or self._pod

    def _print(self, text: str) -> None:
        with self._machine.log_of(*key_of(self._pod)).open("a") as log:
            log.write(f"{text}\n")


def _terminated(ended: Exit, started_at: str, *, reason: str, message: str = "") -> dict[str, Any]:
    stated = {
        "exitCode": ended.code,
        "signal": ended.signal,
        "reason": reason,
        "message": message,
        "startedAt": started_at,
        "finishedAt": time_text(time.time()),
    }
    return {name: value for name, value in stated.items() if value or name == "exitCode"}
