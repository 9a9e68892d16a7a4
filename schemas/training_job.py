"""The TrainingJob: what a user says about a training, as typed values.

`schemas.validation.training_job` builds one from a mapping and reports every problem at once; nothing here checks.
Durations are seconds; amounts of cpu and memory keep Kubernetes' notation (`schemas.quantities` reads it).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "Batch",
    "Checkpoint",
    "Data",
    "Elasticity",
    "Faults",
    "Replicas",
    "Resources",
    "Role",
    "RuntimeSettings",
    "TrainingJob",
]

Framework = Literal["pytorch", "custom"]
Strategy = Literal["live", "fixed"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one pod of a role asks for."""

    cpu: str = "1"
    memory: str = "1Gi"
    gpu: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One kind of pod of the training."""

    name: str
    replicas: Replicas
    resources: Resources = field(default_factory=Resources)
    command: tuple[str, ...] = ()
    """Overrides the spec's command for this role."""
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The global batch and how it follows the number of workers."""

    size: int | None = None
    """Samples a step (`elasticity.batch.global`); None: the training code says it."""
    rule: Literal["constant"] = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """Whether and how the number of workers may change while training runs."""

    strategy: Strategy = "live"
    batch: Batch = field(default_factory=Batch)
    cooldown_s: float = 60.0
    """Least time between two automatic resizes."""
    grace_s: float = 60.0
    """How long a worker has between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """How samples are shared out among workers."""

    sharding: Literal["uniform"] = "uniform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where and how often the state of training is saved."""

    volume: str
    """Name of a PersistentVolumeClaim all workers mount."""
    every_s: float = 300.0
    keep: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What failures lead to."""

    retries: int = 3
    """How often one worker's program may fail before the Job is given up."""
    timeout_s: float | None = None
    keep_for_s: float | None = 3600.0
    """How long a finished Job object stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A training as its user describes it. The form on the wire is in `schemas/json/training-job.v1.schema.json`."""

    name: str
    namespace: str
    framework: Framework
    image: str
    command: tuple[str, ...]
    queue: str
    roles: tuple[Role, ...]
    priority: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    elasticity: Elasticity = field(default_factory=Elasticity)
    data: Data = field(default_factory=Data)
    checkpoint: Checkpoint | None = None
    faults: Faults = field(default_factory=Faults)

    @property
    def workers(self) -> Role:
        """The role that trains and that resizes: `worker`."""
        return next(role for role in self.roles if role.name == "worker")

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change while it runs."""
        return self.elasticity.strategy != "fixed" and not self.workers.replicas.fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """What training code needs to know of the spec; travels to each worker as JSON in `KFP_VOLCANO_ELASTICITY`."""

    batch: int | None = None
    checkpoint_every_s: float = 300.0
    checkpoint_keep: int = 3
    grace_s: float = 60.0
    sharding: str = "uniform"
