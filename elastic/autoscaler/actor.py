# SPDX-License-Identifier: Apache-2.0
"""The autoscaler in Ray actors, which Ray starts again whenever their processes die.

An actor holds no state: a new process goes on from what the cluster holds, under the same identity, so that it takes up
its own Leases. The actors of a supervisor belong to it and end with it; the one beside a Job is named and detached, and
lives on the embedded cluster in the Ray of the cluster's host, in a pod in a small Ray of that pod.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError

from kfp_volcano.elastic.autoscaler.station import Access, Orders, Station
from kfp_volcano.elastic.autoscaler.telling.log_socket import LogSocket, SocketHandler
from kfp_volcano.elastic.autoscaler.telling.narration import log_to
from kfp_volcano.schemas.names import ENV_CLUSTER, SYSTEM_NAMESPACE
from kfp_volcano.volcano.cluster.connect import EMBEDDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import Metric

    from kfp_volcano.elastic.autoscaler.station import State
    from kfp_volcano.elastic.autoscaler.telling.narration import LogFormat
    from kfp_volcano.volcano.cluster.host import OwnRay

__all__ = ["RAY_NAMESPACE", "Crew", "FleetActor", "Joined", "Logging", "join_ray", "sidecar_name", "start_sidecar"]

RAY_NAMESPACE = "kfp-volcano"
START_S = 120.0
ANSWER_S = 5.0
"""How long an actor may take to answer, seconds; one that is starting does not answer yet."""
STOP_S = 15.0
"""How long Leases may take to be given back, seconds."""
_RAY_ADDRESS = "RAY_ADDRESS"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """Where an actor's log goes."""

    form: LogFormat = "text"
    socket: Path | None = None
    """Of a `LogSocket` on the same machine; None for the actor's own standard error, which Ray keeps in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A Ray that this process has joined."""

    logs: Logging
    leave: Callable[[], None] = field(default=lambda: None)
    """Leaves it, and ends it where it is this process's own."""
    died: Callable[[], str] = field(default=lambda: "")
    """Which of its processes has died without which it is of no use, where it is this process's own; else empty."""
    abandon: Callable[[], None] = field(default=lambda: None)
    """Kills what is left of it then."""


class FleetActor:
    """Runs a station until it is told to stop, or until the Job that it is for has ended."""

    def __init__(self, orders: Orders, logs: Logging) -> None:
        here = logs.socket is not None and logs.socket.exists()
        log_to(SocketHandler(logs.socket) if logs.socket and here else None, logs.form)
        self._station = Station(orders)
        self._station.start()
        if orders.only_for:
            threading.Thread(target=self._end_with_the_job, daemon=True).start()

    def pid(self) -> int:
        """The process it runs in: an answer says that it runs."""
        return os.getpid()

    def tend(self, queues: frozenset[str]) -> State:
        """See `Station.tend`."""
        return self._station.tend(queues)

    def families(self) -> list[Metric]:
        """See `Station.families`."""
        return self._station.families()

    def stop(self, timeout_s: float) -> bool:
        """See `Station.stop`."""
        return self._station.stop(timeout_s)

    def _end_with_the_job(self) -> None:
        self._station.join()
        # A way out that Ray does not take for a crash.
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


class Crew:
    """A supervisor's actors; see `supervisor.Crew`.

    Args:
        orders: Of each, but for its queues, and for its number in its identity and its folder.
        log_format: Of their lines.
    """

    def __init__(self, orders: Orders, log_format: LogFormat) -> None:
        self._orders = orders
        self._log_format = log_format
        self._joined: Joined | None = None
        self._actors: dict[int, Any] = {}
        self._asked: dict[int, Any] = {}
        """The call that an actor has not answered yet: none is asked twice at once."""

    def join(self) -> None:
        """Join the Ray that they are to live in; see `join_ray`."""
        self._joined = join_ray(self._orders.access.target, self._log_format)

    def leave(self) -> None:
        """Leave it."""
        if self._joined is not None:
            self._joined.leave()

    def died(self) -> str:
        """See `supervisor.Crew.died`."""
        return self._joined.died() if self._joined else ""

    def abandon(self) -> None:
        """Leave a Ray that has died."""
        if self._joined is not None:
            self._joined.abandon()

    def tend(self, assignment: Mapping[int, frozenset[str]]) -> dict[int, State]:
        """See `supervisor.Crew.tend`."""
        for number, queues in assignment.items():
            if number not in self._asked:
                self._asked[number] = self._actor(number, queues).tend.remote(queues)
        answers = _answers(self._asked)
        for number in answers:
            del self._asked[number]
        for number in [number for number, answer in answers.items() if isinstance(answer, ActorDiedError)]:
            del self._actors[number]  # it is not to come back: another takes its place
        return {number: answer for number, answer in answers.items() if not isinstance(answer, RayError)}

    def families(self) -> dict[int, Iterable[Metric]]:
        """See `supervisor.Crew.families`."""
        answers = _answers({number: actor.families.remote() for number, actor in dict(self._actors).items()})
        return {number: answer for number, answer in answers.items() if not isinstance(answer, RayError)}

    def stop(self) -> None:
        """See `supervisor.Crew.stop`."""
        calls = {number: actor.stop.remote(STOP_S) for number, actor in self._actors.items()}
        answers = _answers(calls, timeout_s=STOP_S + ANSWER_S)
        late = [number for number in calls if answers.get(number) is not True]
        if late:
            _log.warning("actors %s did not end in time: their Leases run out by themselves", late)
        for actor in self._actors.values():
            with contextlib.suppress(RayError):
                ray.kill(actor, no_restart=True)
        self._actors.clear()

    def _actor(self, number: int, queues: frozenset[str]) -> Any:
        if number not in self._actors:
            identity, decisions = f"{self._orders.identity}/{number}", self._orders.decisions
            decisions = decisions and decisions / f"actor-{number}"
            orders = replace(self._orders, identity=identity, decisions=decisions, queues=queues)
            made = ray.remote(FleetActor).options(max_restarts=-1, num_cpus=0)
            self._actors[number] = made.remote(orders, self._joined.logs if self._joined else Logging())
        return self._actors[number]


def _answers(calls: Mapping[int, Any], timeout_s: float = ANSWER_S) -> dict[int, Any]:
    """The answers that come in time, or what they failed with."""
    waiting = list(calls.values())
    done = set(ray.wait(waiting, num_returns=len(waiting), timeout=timeout_s)[0]) if waiting else set()
    return {number: _answer(call) for number, call in calls.items() if call in done}


def _answer(call: Any) -> Any:
    try:
        return ray.get(call, timeout=ANSWER_S)
    except (RayError, GetTimeoutError) as error:
        return error


def sidecar_name(job: str) -> str:
    """The Ray name of the actor beside a Job (namespace/name)."""
    return f"autoscaler:{job}"


def start_sidecar(*, queue: str, job: str, folder: Path | None, policies: Path | None = None) -> Any:
    """Have the autoscaler run beside a Job: the handle of its actor, started if there is none.

    Its log of decisions and the queue's timeline go to `folder`, its Policies are those in the folder `policies`, which
    may be empty.

    Which Ray: that of the embedded cluster's host, where `KFP_VOLCANO_CLUSTER` names one, else one that this process
    starts. Raises an error of Ray's, a RuntimeError mostly, where it does not start.
    """
    cluster = os.environ.get(ENV_CLUSTER, "")
    joined = join_ray(cluster, "text")
    orders = Orders(
        access=Access(target=cluster),
        identity=f"sidecar:{job}",
        namespace=job.partition("/")[0],
        policies=policies,
        policies_optional=True,
        decisions=folder,
        timeline=folder,
        shared_namespace=SYSTEM_NAMESPACE,
        only_for=job,
        queues=frozenset({queue}),
    )
    options = {"name": sidecar_name(job), "namespace": RAY_NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    made = ray.remote(FleetActor).options(**options, max_restarts=-1, max_task_retries=-1, num_cpus=0)
    actor = made.remote(orders, joined.logs)
    ray.get(actor.pid.remote(), timeout=START_S)
    return actor


def join_ray(cluster: str, form: LogFormat) -> Joined:
    """Join the Ray that actors are to live in; to be called from the main thread.

    That of the embedded cluster's host, where `cluster` names one; else that of `RAY_ADDRESS`; else one of this
    process, on loopback, which ends with it. Actors of this machine log where this process does, but for those of the
    host's Ray. Raises RuntimeError or a ClusterError where it cannot be joined.
    """
    if ray.is_initialized():
        return Joined(logs=Logging(form=form))
    if cluster.startswith(EMBEDDED):
        ray.init(address=cluster.removeprefix(EMBEDDED), namespace=RAY_NAMESPACE, log_to_driver=False)
        return Joined(logs=Logging(form=form), leave=ray.shutdown)
    folder: TemporaryDirectory[str] | None = None
    own: OwnRay | None = None
    if address := os.environ.get(_RAY_ADDRESS):
        ray.init(address=address, namespace=RAY_NAMESPACE, log_to_driver=False)
        folder = TemporaryDirectory(prefix="kv-")
        place, end = Path(folder.name), ray.shutdown
    else:
        from kfp_volcano.volcano.cluster.host import start_own_ray, tried  # noqa: PLC0415 - actors need not load it

        own = tried(start_own_ray)
        place, end = own.directory, own.stop
    lines = LogSocket(place / "log")

    def leave() -> None:
        end()
        lines.close()
        if folder is not None:
            folder.cleanup()

    joined = Joined(logs=Logging(form=form, socket=lines.path), leave=leave)
    return replace(joined, died=lambda: own.died, abandon=own.abandon) if own else joined
