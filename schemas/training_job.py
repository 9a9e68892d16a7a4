# SPDX-License-Identifier: Apache-2.0
"""The TrainingJob: what a user says about a training, as typed values.

`schemas.validation.training_job` builds one from a mapping and reports every problem at once; nothing here checks.
Durations are seconds; amounts of cpu and memory keep Kubernetes' notation (`schemas.quantities` reads it).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kfp_volcano.schemas.batch import Batch
from kfp_volcano.schemas.monitor import Monitor
from kfp_volcano.schemas.pods import (
    CLEANUP,
    ENV,
    ENV_FROM,
    PREFLIGHT,
    QUANTITIES,
    QUANTITY,
    VOLUMES,
    Cleanup,
    Env,
    EnvSource,
    GpuShare,
    KubernetesPart,
    Pending,
    Placement,
    Pod,
    Preflight,
    Volume,
)
from kfp_volcano.schemas.quantities import duration, duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FOREVER",
    "Agent",
    "Batch",
    "Checkpoint",
    "Coordinator",
    "Data",
    "Elasticity",
    "Faults",
    "Mpi",
    "Replicas",
    "Resources",
    "Role",
    "RuntimeSettings",
    "Straggler",
    "TrainingJob",
]

FOREVER = "forever"
"""`faults.keepFor` of a Job object that is never removed."""

Framework = Literal["pytorch", "tensorflow", "mpi", "ray", "custom"]
Strategy = Literal["live", "restart", "fixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How many workers a role may have. A plain number in a spec is `min == max`."""

    min: int
    max: int
    initial: int
    """A wish: submit asks for no more surplus than is free."""
    sizes: tuple[int, ...]
    """The sizes it may take, ascending, within min..max; every number where the spec names none."""

    @property
    def fixed(self) -> bool:
        """Whether there is nothing to resize."""
        return self.min == self.max


def _read_replicas(value: float | Mapping[str, Any]) -> Replicas:
    if isinstance(value, int | float):
        number = int(value)
        return Replicas(min=number, max=number, initial=number, sizes=(number,))
    least, most = int(value["min"]), int(value["max"])
    sizes = tuple(sorted(int(size) for size in value.get("sizes", range(least, most + 1))))
    return Replicas(min=least, max=most, initial=int(value.get("initial", sizes[-1])), sizes=sizes)


def _write_replicas(replicas: Replicas) -> int | dict[str, Any]:
    if replicas.fixed:
        return replicas.min
    written: dict[str, Any] = {"min": replicas.min, "max": replicas.max, "initial": replicas.initial}
    every = tuple(range(replicas.min, replicas.max + 1))
    return written if replicas.sizes == every else {**written, "sizes": list(replicas.sizes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one pod of a role asks for."""

    cpu: str = field(default="1", metadata=QUANTITY)
    memory: str = field(default="1Gi", metadata=QUANTITY)
    gpu: int = 0
    gpu_share: GpuShare | None = None
    """Where given, `gpu` counts shared GPUs, not whole ones."""
    rdma: int = 0
    rdma_resource: str = "rdma/hca"
    """What the device plugin calls its RDMA devices."""
    shm: str | None = field(default=None, metadata=QUANTITY)
    """Size of /dev/shm; the container runtime's 64 MiB where None."""
    hugepages: dict[str, str] = field(default_factory=dict, metadata=QUANTITIES)
    """Page size to amount."""
    extra: dict[str, str] = field(default_factory=dict, metadata=QUANTITIES)
    """Other resources by name, limited to what is requested."""
    reserved: bool = False
    """Whether cpu and memory are limited to what is requested, so that the pod's quality of service is Guaranteed."""
    limits: dict[str, str] = field(default_factory=dict, metadata=QUANTITIES)
    """Limits of cpu and memory where they differ from the requests."""
    measured: bool = False
    """Whether cpu and memory follow, from the training's second start on, what was measured of its workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One kind of pod of the training."""

    name: str
    """The key under which it stands."""
    replicas: Replicas = field(metadata={"codec": (_read_replicas, _write_replicas)})
    resources: Resources = field(default_factory=Resources)
    min: int | None = None
    """How many of a fixed number of pods the Job cannot run without; all where None."""
    procs: int | None = None
    """Processes (MPI: slots) a pod; one for each GPU, at least one, where None."""
    image: str | None = None
    command: tuple[str, ...] = ()
    """Overrides the spec's command and args for this role."""
    args: tuple[str, ...] = ()
    env: Env = field(default_factory=dict, metadata=ENV)
    env_from: tuple[EnvSource, ...] = field(default=(), metadata=ENV_FROM)
    volumes: tuple[Volume, ...] = field(default=(), metadata=VOLUMES)
    pod: Pod = field(default_factory=Pod)
    pod_patch: KubernetesPart = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    depends_on: tuple[str, ...] = ()
    """Roles whose pods have to run before the pods of this one are made."""
    success: bool | None = None
    """Whether the Job has succeeded once the pods of this role have; the framework's own rule where None."""

    @property
    def processes(self) -> int:
        """How many processes a pod runs."""
        return self.procs or max(1, 0 if self.resources.gpu_share else self.resources.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """The pod that brings the workers of an elastic Job together."""

    image: str | None = None
    """An image that holds kfp-volcano; the spec's image where None."""
    service_account: str | None = None
    resources: Resources = field(default_factory=lambda: Resources(cpu="500m", memory="1Gi"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The agent of strategy `restart`, for images that lack kfp-volcano; they need Python 3.10 or later."""

    image: str
    """An image that holds kfp-volcano: an init container copies the agent from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """Whether and how the number of workers may change while training runs."""

    strategy: Strategy = "live"
    batch: Batch = field(default_factory=Batch)
    cooldown_s: float = 60.0
    """Least time between two automatic resizes."""
    grace_s: float = 60.0
    """How long a worker has between SIGTERM and SIGKILL."""
    coordinator: Coordinator = field(default_factory=Coordinator)
    agent: Agent | None = None
    """None: the roles' images hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """How samples are shared out among workers."""

    sharding: Literal["uniform", "proportional"] = "uniform"
    """Equal shares of each global batch, or such as follow the workers' measured speeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where and how often the state of training is saved."""

    volume: str
    """Name of a PersistentVolumeClaim all workers mount."""
    every_s: float = 300.0
    keep: int = 3
    best: str | None = None
    """The metric whose best value's checkpoint stays beside the newest ones."""
    best_mode: Literal["max", "min"] | None = None
    """Which value is the best; None: the largest."""
    url: str | None = None
    """Where checkpoints go instead of the volume; each Job has a folder of its own below it."""
    start: str | None = field(default=None, metadata={"key": "from"})
    """Another training's checkpoints, or a final model, that a training without checkpoints begins with."""


def _read_keeping(value: str | float) -> float | None:
    return None if value == FOREVER else duration(value)


def _write_keeping(seconds: float | None) -> str | float:
    return FOREVER if seconds is None else duration_text(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """What a worker that is slower than the others leads to (`live`)."""

    factor: float = 2.0
    """How many times longer its part of a step takes than the others', by sample."""
    window: int = 50
    """Over how many steps."""
    then: Literal["report", "restart"] = "report"
    """`restart`: it leaves after a step, which costs none, and is started again in its pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What failures lead to."""

    retries: int = 3
    """How often one worker's program may fail before the Job is given up."""
    timeout_s: float | None = None
    keep_for_s: float | None = field(default=3600.0, metadata={"codec": (_read_keeping, _write_keeping)})
    """How long a finished Job object stays; None: for ever."""
    failed: Literal["retry", "restartJob", "fail"] = "retry"
    """`retry`: the program starts again in its pod, `retries` times; `restartJob`: all pods anew; `fail`: the end."""
    evicted: Literal["replace", "restartJob", "fail"] | None = None
    """What a pod that others took away leads to. None: replace where the size may change, else restartJob."""
    straggler: Straggler | None = None
    hang_s: float | None = None
    """For how long a worker may work on its share of a step while the others wait for it; None: for ever."""
    pending: Pending | None = None
    preflight: Preflight | None = field(default=None, metadata=PREFLIGHT)
    """Examines a pod's devices before training starts in it."""
    cleanup: Cleanup | None = field(default=None, metadata=CLEANUP)
    """Runs after the training program, however that ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """How the launcher of an MPI training reaches its workers."""

    ssh_path: str = "/root/.ssh"
    """Where Volcano mounts the keys of ssh: the `.ssh` folder of the image's user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A training as its user describes it. The form on the wire is in `schemas/json/training-job.v1.schema.json`."""

    name: str
    namespace: str
    framework: Framework
    image: str
    queue: str
    roles: tuple[Role, ...]
    command: tuple[str, ...] = ()
    """Empty: the image's own entry point."""
    args: tuple[str, ...] = ()
    priority: str | None = None
    min_pods: int | None = None
    """Pods of all roles together without which nothing starts; the sum of the roles' minima where None."""
    env: Env = field(default_factory=dict, metadata=ENV)
    env_from: tuple[EnvSource, ...] = field(default=(), metadata=ENV_FROM)
    volumes: tuple[Volume, ...] = field(default=(), metadata=VOLUMES)
    pod: Pod = field(default_factory=Pod)
    pod_patch: KubernetesPart = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    mpi: Mpi | None = None
    elasticity: Elasticity = field(default_factory=Elasticity)
    data: Data = field(default_factory=Data)
    checkpoint: Checkpoint | None = None
    faults: Faults = field(default_factory=Faults)
    monitor: Monitor | None = None

    @property
    def workers(self) -> Role:
        """The role that trains, and the one that may resize: `worker`, or the first by name where there is none."""
        return self.roles[0]

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change while it runs."""
        return self.elasticity.strategy != "fixed" and not self.workers.replicas.fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """What training code needs to know of the spec; travels to each worker as JSON in `KFP_VOLCANO_ELASTICITY`."""

    batch: int | None = None
    """`elasticity.batch.global`: all that versions before 0.2 know of the batch."""
    scaling: Batch = field(default_factory=Batch)
    """The rest of `elasticity.batch`."""
    workers: int | None = None
    """The most there may be, where the batch follows them."""
    checkpoint_every_s: float = 300.0
    checkpoint_keep: int = 3
    checkpoint_url: str | None = None
    """Where the Job's checkpoints are; None: in its folder on the volume."""
    checkpoint_best: str | None = None
    checkpoint_best_mode: Literal["max", "min"] = "max"
    checkpoint_from: str | None = None
    grace_s: float = 60.0
    sharding: str = "uniform"
    monitor: Monitor = field(default_factory=Monitor)
    """As in the spec, in the spec's own form (`schemas.codec`)."""
    hang_s: float | None = None
    straggler_factor: float | None = None
    """None: nobody looks for stragglers."""
    straggler_window: int = 50
    straggler_then: str = "report"
