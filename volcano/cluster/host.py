# SPDX-License-Identifier: Apache-2.0
"""The embedded cluster's host: a Ray of its own with one named actor in it, and the way to that actor.

`start_host` starts Ray on loopback with a fresh token and puts the cluster into an actor; `RemoteCluster` is the
Cluster port over it, for any process that has the address and the token (`RAY_AUTH_TOKEN`, inherited by the steps).
Whoever started the host owns it: when that process ends, however it does, the actor ends all pods and itself.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import select
import socket
import subprocess
import tempfile
import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import ray
from ray._private import ray_constants, worker
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.exceptions import RayActorError, RayError, RaySystemError, RayTaskError

from kfp_volcano.errors import KfpVolcanoError, UnavailableError
from kfp_volcano.schemas.names import ENV_CLUSTER
from kfp_volcano.volcano.cluster.embedded import EmbeddedCluster
from kfp_volcano.volcano.cluster.logical_nodes import parse_nodes
from kfp_volcano.volcano.cluster.polling import Events, follow_logs_by_reading, watch_by_polling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kfp_volcano.volcano.cluster.base import Event, Findings, Manifest, Page, Patch

__all__ = ["OwnRay", "RemoteCluster", "start_host", "start_own_ray", "stop_host", "tried"]

NAMESPACE = "kfp-volcano"
"""The Ray namespace of the host's actors."""

_ACTOR = "cluster"
_THREADS = 128
"""Calls that the actor answers at once; each open watch holds one."""
_OBJECT_STORE = 80 * 1024 * 1024
_LONGEST_POLL_S = 10.0
_ANSWER_S = 30.0
_JANITOR_S = 10.0
_KNOCK_S = 5.0
_LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Off, Ray takes 127.0.0.1 for its node's address, and then listens nowhere else."""
_SETTINGS = {
    _LOOPBACK_ONLY: "0",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_kill_child_processes_on_worker_exit": "0",  # it would kill the shims, and who then ends their daemons?
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}
T = TypeVar("T")

_TRIES = 3
"""Ray gives its node half a minute to start, which on a busy machine may be too little once."""
_VITAL = {"gcs_server", "raylet"}
_TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105  # the variable's name


@dataclass(frozen=True, slots=True)
class OwnRay:
    """A Ray of this process: on loopback, for those who have its token, and gone when this process is."""

    address: str
    directory: Path
    """Its folder; others may be put there, too."""
    janitor: subprocess.Popen[bytes]
    """Removes the folder when its standard input ends: by `stop`, or with this process."""

    @property
    def died(self) -> str:
        """Which of the two processes that it cannot do without has died; empty while both live.

        Ray itself notices after a minute, and then ends this process.
        """
        dead = {kind for kind, _ in worker._global_node.dead_processes()} if worker._global_node else set()  # noqa: SLF001 - nothing public tells
        return ", ".join(sorted(dead & _VITAL))

    def abandon(self) -> None:
        """Kill what is left of it; nothing of Ray's may be called any more."""
        worker._global_node.kill_all_processes(check_alive=False, allow_graceful=False)  # noqa: SLF001 - as above

    def stop(self) -> None:
        """End it, and remove what it has left."""
        _stop(self.janitor)


@dataclass(frozen=True, slots=True)
class _Started:
    """What this process has started and has to end."""

    actor: Any
    """Held on to: the actor lives as long as someone does."""
    ray: OwnRay


_started: list[_Started] = []


class _Host:
    """What runs in the actor."""

    def __init__(self, directory: Path, options: Mapping[str, Any], starter: int) -> None:
        self._cluster = EmbeddedCluster(directory, **options)
        threading.Thread(target=self._watch_starter, args=(starter,), daemon=True).start()

    def call(self, method: str, *args: object, **options: object) -> Any:
        """A method of the cluster."""
        return getattr(self._cluster, method)(*args, **options)

    def _watch_starter(self, starter: int) -> None:
        """End all pods when the process that started the host has ended; Ray itself ends with it, too."""
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(starter)
            select.select([ended], [], [])
        self._cluster.shutdown(0)
        os._exit(0)


def start_host(
    directory: Path,
    *,
    nodes: str = "2x4",
    queues: Sequence[str] = ("default", "research"),
    workdir: Path | None = None,
    volumes: Mapping[str, str | Path] | None = None,
) -> str:
    """Start an embedded cluster in a Ray of its own; returns the address for `RemoteCluster`.

    The arguments are those of `EmbeddedCluster`. To be called from the main thread: the kernel ends Ray's processes
    with the thread that started them. Sets `RAY_AUTH_MODE` and `RAY_AUTH_TOKEN` for this process and its children.
    Raises UnavailableError where Ray does not start.
    """
    parse_nodes(nodes)
    if ray.is_initialized():
        raise UnavailableError("this process is connected to a Ray already; the embedded cluster starts its own")
    options = {
        "nodes": nodes,
        "queues": tuple(queues),
        "workdir": (workdir or Path.cwd()).absolute(),
        "volumes": dict(volumes or {}),
        "env": dict(os.environ),
    }
    address = tried(lambda: _start(directory.absolute(), options))
    atexit.register(stop_host, grace_s=0)
    return address


def _start(directory: Path, options: Mapping[str, Any]) -> str:
    own = start_own_ray()
    try:
        coordinator = {ENV_CLUSTER: f"embedded:{own.address}"}
        coordinator |= {name: os.environ[name] for name in (*_SETTINGS, _TOKEN)}
        host = ray.remote(_Host).options(name=_ACTOR, num_cpus=0, max_concurrency=_THREADS)
        actor = host.remote(directory, {**options, "coordinator_env": coordinator}, os.getpid())
        _started.append(_Started(actor, own))
        RemoteCluster(own.address).list("Node")
    except BaseException:
        _started.clear()
        own.stop()
        raise
    return own.address


def tried(start: Callable[[], T]) -> T:
    """What starting something in a Ray of its own gives, by the third time; raises UnavailableError as that does."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(UnavailableError):
            return start()
    return start()


def start_own_ray() -> OwnRay:
    """Start a Ray for this process and join it.

    To be called from the main thread: the kernel ends Ray's processes with the thread that started them. Sets
    `RAY_AUTH_MODE` and `RAY_AUTH_TOKEN` for this process and its children. Raises UnavailableError where Ray does not
    start.
    """
    directory = Path(tempfile.mkdtemp(prefix="kv-", dir="/tmp"))  # socket paths must stay short
    janitor = _start_janitor(directory)
    try:
        _configure_ray({**_SETTINGS, _TOKEN: secrets.token_hex(32)})
        return OwnRay(_start_ray(directory), directory, janitor)
    except BaseException:
        _stop(janitor)
        raise


def _start_ray(directory: Path) -> str:
    try:
        context = ray.init(
            namespace=NAMESPACE,
            num_cpus=4,
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(directory),
        )
    except Exception as error:  # Ray raises nothing more special where its node does not start in time
        raise UnavailableError(f"Ray did not start: {error}") from error
    return str(context.address_info["gcs_address"])


def stop_host(grace_s: float = 5.0) -> None:
    """End all pods, the actor and its Ray; does nothing where none was started by this process."""
    if not _started:
        return
    with contextlib.suppress(UnavailableError):
        _answer(_started[0].actor.call.remote("shutdown", grace_s), timeout_s=grace_s + _ANSWER_S)
    _started.pop().ray.stop()


def _stop(janitor: subprocess.Popen[bytes]) -> None:
    ray.shutdown()
    with contextlib.suppress(subprocess.TimeoutExpired):
        janitor.communicate(timeout=_JANITOR_S)
    _configure_ray(dict.fromkeys((*_SETTINGS, _TOKEN)))


def _start_janitor(directory: Path) -> subprocess.Popen[bytes]:
    """A process that removes a folder once this one has ended, by whatever means."""
    script = f"cat > /dev/null; rm -rf {directory} || {{ sleep 2; rm -rf {directory}; }}"
    return subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, start_new_session=True)


def _configure_ray(variables: Mapping[str, str | None]) -> None:
    """Set or remove Ray's variables, and have it read them again: it did so when it was imported."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    ray_constants.ENABLE_RAY_CLUSTER = _LOOPBACK_ONLY not in os.environ
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


class RemoteCluster:
    """The embedded cluster of a host, from any process: the Cluster port over its actor.

    Raises what the cluster raises; UnavailableError where there is no host at the address, or it has ended.
    """

    def __init__(self, address: str) -> None:
        try:
            if not ray.is_initialized():
                _knock(address)
                ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
            actor = ray.get_actor(_ACTOR, NAMESPACE)
        except (OSError, ValueError, RuntimeError, RayError) as error:
            raise UnavailableError(f"no embedded cluster answers at {address}: {error}") from error
        self._there = cast("EmbeddedCluster", _Calls(actor))

    def create(self, manifest: Manifest) -> Manifest:
        """See `Cluster.create`."""
        return self._there.create(manifest)

    def get(self, kind: str, name: str, namespace: str = "") -> Manifest:
        """See `Cluster.get`."""
        return self._there.get(kind, name, namespace)

    def list(
        self,
        kind: str,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        *,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[list[Manifest], str]:
        """See `Cluster.list`."""
        return self._there.list(kind, namespace, labels, fields=fields)

    def pages(self, kind: str, namespace: str = "") -> Iterator[Page]:
        """See `Cluster.pages`."""
        yield self.list(kind, namespace)

    def patch(self, kind: str, name: str, namespace: str, patch: Patch) -> Manifest:
        """See `Cluster.patch`."""
        return self._there.patch(kind, name, namespace, patch)

    def delete(self, kind: str, name: str, namespace: str = "", *, grace_s: float | None = None, uid: str = "") -> None:
        """See `Cluster.delete`."""
        self._there.delete(kind, name, namespace, grace_s=grace_s, uid=uid)

    def watch(
        self, kind: str, namespace: str = "", *, resource_version: str, timeout_s: float = 30.0
    ) -> Iterator[Event]:
        """See `Cluster.watch`."""
        return watch_by_polling(self._poll, kind, namespace, resource_version=resource_version, timeout_s=timeout_s)

    def logs(self, pod: str, namespace: str, *, after: str = "", tail: int | None = None) -> tuple[str, str]:
        """See `Cluster.logs`."""
        return self._there.logs(pod, namespace, after=after, tail=tail)

    def follow_logs(
        self, pod: str, namespace: str, *, after: str = "", stop: threading.Event
    ) -> Iterator[tuple[str, str]]:
        """See `Cluster.follow_logs`."""
        return follow_logs_by_reading(self, pod, namespace, after=after, stop=stop)

    def volume(self, namespace: str, claim: str) -> Path | None:
        """See `Cluster.volume`."""
        return self._there.volume(namespace, claim)

    def own_pod(self) -> Manifest | None:
        """See `Cluster.own_pod`: the steps of a run on this machine are processes beside the cluster."""
        return None

    def preflight(self, job: Manifest) -> Findings:
        """See `Cluster.preflight`."""
        return self._there.preflight(job)

    def _poll(self, kind: str, namespace: str, *, resource_version: str, timeout_s: float) -> tuple[Events, str]:
        timeout_s = min(timeout_s, _LONGEST_POLL_S)
        return self._there.poll(kind, namespace, resource_version=resource_version, timeout_s=timeout_s)


def _knock(address: str) -> None:
    """Raise OSError or ValueError where nothing listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()


class _Calls:
    """Any method of the cluster, called in its actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *args, **options: _answer(self._actor.call.remote(method, *args, **options))


def _answer(reference: Any, *, timeout_s: float = _ANSWER_S) -> Any:
    """What a call of the actor returned or raised.

    By a future, for a thread that waits inside `ray.get` when its process ends makes that end with exit code 1.
    """
    try:
        return reference.future().result(timeout_s)
    except RayTaskError as error:
        if isinstance(error.cause, KfpVolcanoError):
            raise error.cause from None
        raise
    except (RayActorError, RaySystemError, FutureTimeoutError) as error:
        raise UnavailableError(f"the embedded cluster's host does not answer: {error}") from error
