# SPDX-License-Identifier: Apache-2.0
"""The embedded cluster: objects, Volcano's model in place of Volcano, pods as real processes of this machine.

A Cluster like any other (`cluster.base`); thread-safe. Nothing in it polls: a change wakes the control loop, which
lets the controllers act and, after a moment in which more changes may come, the scheduler.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_volcano.errors import NotFoundError
from kfp_volcano.schemas import names
from kfp_volcano.volcano.cluster import preflight
from kfp_volcano.volcano.cluster.addresses import AddressBook
from kfp_volcano.volcano.cluster.events import events_for
from kfp_volcano.volcano.cluster.kubelet import Kubelet
from kfp_volcano.volcano.cluster.logical_nodes import logical_nodes, parse_nodes
from kfp_volcano.volcano.cluster.pod_worker import Machine
from kfp_volcano.volcano.cluster.polling import follow_logs_by_reading, watch_by_polling
from kfp_volcano.volcano.cluster.store import Store
from kfp_volcano.volcano.cluster.volumes import Volumes
from kfp_volcano.volcano.manifests.priority import priority_classes
from kfp_volcano.volcano.model import expiry
from kfp_volcano.volcano.model.control import run_controllers, run_scheduler
from kfp_volcano.volcano.model.objects import Transition, key_of
from kfp_volcano.volcano.model.pods import task_of
from kfp_volcano.volcano.model.queues import root_queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kfp_volcano.volcano.cluster.base import Event, Findings, Manifest, Page, Patch
    from kfp_volcano.volcano.cluster.polling import Events

__all__ = ["EmbeddedCluster"]

_DEBOUNCE_S = 0.02
_MOST_EVENTS = 2000
_PRIVATE = ("RAY_", "KFP_VOLCANO_")
_ONE_MACHINE = {
    "GLOO_SOCKET_IFNAME": "lo",
    # Open MPI takes pods for machines: their processes would share memory under names that are unique on a machine.
    "OMPI_MCA_btl": "self,tcp",
}
"""What collective libraries have to know of pods that are processes of one machine."""


class EmbeddedCluster:
    """A cluster on this machine, with the priority classes of `deploy/priorities`.

    Args:
        directory: where logs (`logs/<namespace>/<pod>.log`) and volumes are kept.
        nodes: logical nodes, see `parse_nodes`.
        queues: names of the queues; each may use all GPUs.
        workdir: folder in which containers run, where their `workingDir` names none of this machine.
        volumes: folders for claims, by claim name, in place of the cluster's own.
        env: environment of every pod before its own; by default this process's, without what is private to it.
        coordinator_env: what only pods of the task `coordinator` get on top: how to reach this cluster.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: str = "2x4",
        queues: Sequence[str] = ("default", "research"),
        workdir: Path | None = None,
        volumes: Mapping[str, str | Path] | None = None,
        env: Mapping[str, str] | None = None,
        coordinator_env: Mapping[str, str] | None = None,
    ) -> None:
        directory = directory.absolute()
        self._workdir = (workdir or Path.cwd()).absolute()
        self._env = _pod_environment(os.environ if env is None else env)
        self._coordinator_env = dict(coordinator_env or {})
        self._store = Store()
        self._volumes = Volumes(directory, volumes or {})
        self._addresses = AddressBook()
        self._machine = Machine(
            store=self._store,
            addresses=self._addresses,
            volumes=self._volumes,
            logs=directory / "logs",
            workdir=self._workdir,
            interpreter=sys.executable,
            env_of=self._env_of,
        )
        self._kubelet = Kubelet(self._machine)
        self._unreported: deque[Transition] = deque()
        self._events: deque[tuple[str, str]] = deque()
        self._closing = threading.Event()
        self._populate(nodes, queues)
        self._store.listen(self._kubelet.observe)
        self._store.listen(self._unreported.append)
        self._control = threading.Thread(target=self._run, name="embedded-control", daemon=True)
        self._control.start()

    def create(self, manifest: Manifest) -> Manifest:
        """See `Cluster.create`."""
        return self._store.create(manifest)

    def get(self, kind: str, name: str, namespace: str = "") -> Manifest:
        """See `Cluster.get`."""
        return self._store.get(kind, name, namespace)

    def list(
        self,
        kind: str,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[list[Manifest], str]:
        """See `Cluster.list`."""
        return self._store.list(kind, namespace, labels, fields=fields)

    def pages(self, kind: str, namespace: str = "") -> Iterator[Page]:
        """See `Cluster.pages`."""
        yield self.list(kind, namespace)

    def patch(self, kind: str, name: str, namespace: str, patch: Patch) -> Manifest:
        """See `Cluster.patch`."""
        return self._store.patch(kind, name, namespace, patch)

    def delete(self, kind: str, name: str, namespace: str = "", *, grace_s: float | None = None, uid: str = "") -> None:
        """See `Cluster.delete`."""
        self._store.delete(kind, name, namespace, grace_s=grace_s, uid=uid)

    def watch(
        self, kind: str, namespace: str = "", *, resource_version: str, timeout_s: float = 30.0
    ) -> Iterator[Event]:
        """See `Cluster.watch`."""
        return watch_by_polling(self.poll, kind, namespace, resource_version=resource_version, timeout_s=timeout_s)

    def poll(self, kind: str, namespace: str, *, resource_version: str, timeout_s: float) -> tuple[Events, str]:
        """See `Store.poll`."""
        return self._store.poll(kind, namespace, resource_version=resource_version, timeout_s=timeout_s)

    def logs(self, pod: str, namespace: str, *, after: str = "", tail: int | None = None) -> tuple[str, str]:
        """See `Cluster.logs`; places are bytes of the log."""
        path = self._machine.log_of(namespace, pod)
        offset = int(after or 0)
        try:
            with path.open("rb") as log:
                log.seek(offset)
                whole, end, _ = log.read().rpartition(b"\n")
        except FileNotFoundError:
            if (namespace, pod) in self._pod_names():
                return "", after
            raise NotFoundError(f"Pod {namespace}/{pod} not found") from None
        lines = (whole + end).splitlines(keepends=True)
        kept = lines if tail is None else lines[-tail:] if tail else []
        return b"".join(kept).decode(errors="replace"), str(offset + len(whole + end))

    def follow_logs(
        self, pod: str, namespace: str, *, after: str = "", stop: threading.Event
    ) -> Iterator[tuple[str, str]]:
        """See `Cluster.follow_logs`."""
        return follow_logs_by_reading(self, pod, namespace, after=after, stop=stop)

    def volume(self, namespace: str, claim: str) -> Path | None:
        """See `Cluster.volume`."""
        return self._volumes.claim(namespace, claim)

    def own_pod(self) -> Manifest | None:
        """See `Cluster.own_pod`: who asks from outside is not in a pod, and pods ask through `RemoteCluster`."""
        return None

    def preflight(self, job: Manifest) -> Findings:
        """See `Cluster.preflight`."""
        with self._store.transaction() as (world, _):
            objects = {kind: dict(kept) for kind, kept in world.objects.items()}
        return [
            *preflight.queue_problems(job, objects),
            *preflight.priority_problems(job, objects),
            *preflight.size_problems(job, objects),
            *preflight.command_problems(job, self._workdir, self._env["PATH"]),
            *preflight.volume_problems(job, self._volumes),
            *preflight.plugin_problems(job, self._env["PATH"]),
        ]

    def shutdown(self, grace_s: float = 5.0) -> None:
        """End all pods, and the cluster; no process of it is left when this returns."""
        with self._store.changed:
            self._closing.set()
            self._store.changed.notify_all()
        self._control.join()
        self._kubelet.shutdown(grace_s)
        self._addresses.close()

    def _populate(self, nodes: str, queues: Sequence[str]) -> None:
        groups = parse_nodes(nodes)
        gpus = sum(group.count * group.gpus for group in groups if not group.memory)
        with self._store.transaction() as (world, now):
            for manifest in (*logical_nodes(groups), *priority_classes(), root_queue()):
                world.create(manifest, now)
            for name in queues:
                spec = {"capability": {names.GPU: str(gpus)}}
                world.create({**root_queue(), "metadata": {"name": name}, "spec": spec}, now)
            run_controllers(world, now)

    def _run(self) -> None:
        """The control loop."""
        seen = -1
        while True:
            with self._store.changed:
                while self._store.version == seen and not self._closing.is_set():
                    if not self._store.changed.wait(self._patience()):
                        break
                if self._closing.is_set():
                    return
            self._act()
            if self._closing.wait(_DEBOUNCE_S):
                return
            with self._store.transaction() as (world, now):
                seen = world.version  # whatever changes from here on deserves another round
                run_controllers(world, now)
                run_scheduler(world, now)
                run_controllers(world, now)

    def _act(self) -> None:
        """Controllers, expired Jobs, Events."""
        with self._store.transaction() as (world, now):
            for expired in expiry.collect(world.objects, now):
                world.apply(expired, now)
            run_controllers(world, now)
            while self._unreported:
                for event in events_for(self._unreported.popleft(), now):
                    self._events.append(key_of(world.create(event, now)))
            while len(self._events) > _MOST_EVENTS:
                world.remove("Event", self._events.popleft(), now)

    def _patience(self) -> float | None:
        """How long the control loop may sleep if nothing happens: until a Job expires or a policy's time is over."""
        with self._store.transaction() as (world, now):
            times = (expiry.next_expiry(world.objects), world.delays.next_due())
        at = min((each for each in times if each is not None), default=None)
        return None if at is None else max(0.0, at - now)

    def _env_of(self, pod: Manifest) -> dict[str, str]:
        return {**self._env, **(self._coordinator_env if task_of(pod) == names.COORDINATOR else {})}

    def _pod_names(self) -> set[tuple[str, str]]:
        with self._store.transaction() as (world, _):
            return set(world.objects.get("Pod", {}))


def _pod_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What a pod's processes get: the user's environment without tokens and the like, and this interpreter first."""
    kept = {name: value for name, value in env.items() if not name.startswith(_PRIVATE)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return {"PYTHONUNBUFFERED": "1", **kept, "PATH": path, **_ONE_MACHINE}
