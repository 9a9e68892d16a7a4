# SPDX-License-Identifier: Apache-2.0
"""What the parts write to each other on the Job object and on nodes: JSON in annotations, each with a schema.

All times are Unix seconds, all durations seconds. `parse` and `dump` convert one annotation's text; unknown keys of a
newer version are ignored, so that an old reader survives a new writer.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "RENDERED",
    "Advice",
    "BatchRange",
    "ClassChange",
    "Hold",
    "LossTrend",
    "Measured",
    "MembershipChange",
    "Move",
    "Owner",
    "Phase",
    "Progress",
    "ResizeOutcome",
    "ResizeRequest",
    "StepRecord",
    "Unfit",
    "Watched",
    "dump",
    "parse",
    "parse_list",
]


class Phase(str, Enum):
    """How far a resize has come. The last four are final."""

    ACCEPTED = "Accepted"
    PATCHED = "Patched"
    READY = "Ready"
    DONE = "Done"
    ROLLED_BACK = "RolledBack"
    EXPIRED = "Expired"
    REFUSED = "Refused"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen to this resize."""
        return self in {Phase.DONE, Phase.ROLLED_BACK, Phase.EXPIRED, Phase.REFUSED}


RENDERED = "render"
"""The step of Jobs that `kfp-volcano render` writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Annotation `kfp-volcano/owner`: which step of which run created the Job, from which spec."""

    run_id: str
    step: str
    spec_hash: str

    @property
    def has_follower(self) -> bool:
        """Whether somebody is going to follow the Job: not where it was rendered, and brought there by other hands."""
        return self.step != RENDERED


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRequest:
    """Annotation `kfp-volcano/request`: the number of workers that somebody wants the Job to have."""

    id: str
    from_workers: int
    to_workers: int
    reason: str
    """Reason code, one word: `QueueIdle`, `GangPending`, …"""
    explanation: str
    """One sentence for people."""
    policy: str
    by: str
    at: float
    expires: float
    urgent: bool = False
    """Owed to a waiting gang: the autoscaler patches at once under the Lease, the DAG's step verifies and records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeOutcome:
    """One entry of annotation `kfp-volcano/resize` (newest last, at most 50): what became of a request."""

    id: str
    phase: Phase
    from_workers: int
    to_workers: int
    reason: str
    explanation: str
    requested_at: float
    executed_by: str
    accepted_at: float | None = None
    patched_at: float | None = None
    settled_at: float | None = None
    """When `to_workers` was lowered to what had found a node, where it was."""
    ready_at: float | None = None
    done_at: float | None = None
    pause_s: float | None = None
    """Longest time between two committed steps around the resize, less the median step time."""
    steps_lost: int | None = None
    """Training steps that were computed and had to be discarded because of it."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChange:
    """A change of the number of workers that trained, as training saw it."""

    step: int
    from_workers: int
    to_workers: int
    at: float
    pause_s: float
    steps_lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How fast a Job trained at a size."""

    workers: int
    throughput: float
    """Samples per second."""
    batch: int
    """Global batch, samples."""
    nodes: int = 1
    """Nodes its workers were on."""
    gpu_class: str = ""
    """Of the slowest of them, empty where none is known."""
    compute_s: float | None = None
    """What of a step a worker computes for, before it sums its gradients with the others', where training tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRange:
    """The batches that a training chooses from by itself, samples."""

    least: int
    """Global; what others are compared with."""
    most: int
    """Global."""
    least_each: int = 1
    """Of a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTrend:
    """Where the loss goes."""

    best: float
    """The least that its average over some steps was."""
    spread: float
    """How far single steps were from the average then, on average."""
    now: float | None = None
    """Its average at present; None: the last loss is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the training's watch has done about what it saw."""

    rollbacks: int = 0
    lr_factor: float = 1.0
    """By which the learning rate is lowered."""
    growth_stopped: str = ""
    """Why the Job is to have no more workers; empty where it may."""
    size: int | None = None
    """Workers it had when it was last fine, where it went back to that and had others since."""
    size_asked_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Annotation `kfp-volcano/progress`: where training stands; written by the coordinator at most every 5 s."""

    step: int
    total_steps: int
    samples: int
    epoch: int
    throughput: float
    """Samples per second over the last reports."""
    workers: int
    batch: int
    lr: float
    at: float
    loss: float | None = None
    """Of the last step; None where it is not finite, too."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The latest values the training code logged itself, e.g. accuracy."""
    changes: tuple[MembershipChange, ...] = ()
    """The last 20 changes of membership, newest last."""
    measured: tuple[Measured, ...] = ()
    """How fast it was at the last 16 sizes it had, the newest last."""
    noise_scale: float | None = None
    """Gradient noise scale, samples; None before two workers, or one in parts, have trained long enough."""
    trend: LossTrend | None = None
    """None before there were some steps."""
    watched: Watched | None = None
    """None where the watch has done nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One entry of annotation `kfp-volcano/steps`: a DAG step that has run."""

    name: str
    attempt: int
    outcome: str
    """`Running`, `Succeeded`, `Failed`, or for a train step also `Resized`."""
    started_at: float
    ended_at: float | None = None
    saw: str = ""
    """What it saw fail, in words: when somebody asks the pods are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Annotation `kfp-volcano/hold`: a person wants no automatic resize until then; `override` sets a size."""

    until: float
    by: str
    override: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One entry of annotation `kfp-volcano/moves` (newest last): a pod whose preflight failed on its node."""

    pod: str
    uid: str
    """Of the pod: one of the same name that came after it is another."""
    node: str
    exit_code: int
    at: float
    """When the preflight failed."""
    message: str = ""
    """What it printed last."""
    restarted_at: float | None = None
    """When the whole Job was told to begin anew because of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Annotation `kfp-volcano/advice`: what each worker should request instead, from what was measured."""

    at: float
    explanation: str
    cpu: str | None = None
    """A quantity; None where the request is about right, or nothing is known."""
    memory: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassChange:
    """One entry of annotation `kfp-volcano/classes` (newest last, at most 20): another priority class for the Job."""

    from_class: str
    to_class: str
    reason: str
    """Reason code, one word: `WaitedLong`, …; `Person` where a person chose the class."""
    explanation: str
    """One sentence for people."""
    by: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """Annotation `kfp-volcano/unfit` of a node that has the label of that name: how long pods with devices avoid it."""

    until: float
    job: str
    """The Job whose preflight failed there, as namespace/name."""
    pod: str
    exit_code: int


T = TypeVar("T")


def dump(record: object) -> str:
    """A record, or a list of records, as the text of an annotation."""
    if isinstance(record, (list, tuple)):
        return json.dumps([_plain(item) for item in record], separators=(",", ":"))
    return json.dumps(_plain(record), separators=(",", ":"))


def parse(kind: type[T], text: str) -> T:
    """The record in an annotation's text. Raises ValueError where it is not one."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{kind.__name__}: expected a JSON object, found {type(value).__name__}")  # noqa: TRY004
    return _build(kind, value)


def parse_list(kind: type[T], text: str | None) -> list[T]:
    """The list of records in an annotation's text; empty where there is none."""
    return [_build(kind, value) for value in json.loads(text)] if text else []


def _plain(record: object) -> dict[str, Any]:
    if not is_dataclass(record) or isinstance(record, type):
        raise TypeError(f"not a record: {record!r}")
    return {key: value for key, value in asdict(record).items() if value is not None}


def _build(kind: type[T], value: Mapping[str, Any]) -> T:
    hints = _hints(kind)  # type: ignore[arg-type] # classes are hashable
    arguments: dict[str, Any] = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        if entry.name not in value:
            continue
        raw = value[entry.name]
        hint = hints[entry.name]
        nested = next((a for a in (hint, *get_args(hint)) if isinstance(a, type) and is_dataclass(a)), None)
        if isinstance(raw, list) and get_origin(hint) is tuple:
            raw = tuple(_build(nested, item) if nested else item for item in raw)
        elif nested is not None and isinstance(raw, dict):
            raw = _build(nested, raw)
        elif isinstance(hint, type) and issubclass(hint, Enum):
            raw = hint(raw)
        if not _is_a(raw, hint):
            raise ValueError(f"{kind.__name__}.{entry.name}: {raw!r} is not of type {hint}")
        arguments[entry.name] = raw
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error


@lru_cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of a record's fields: the same each time, and slow to find out."""
    return get_type_hints(kind)


def _is_a(value: object, hint: Any) -> bool:
    """Whether a value of JSON may stand where a type is wanted; what containers hold is not looked at."""
    allowed = get_args(hint) if get_origin(hint) in {Union, UnionType} else (get_origin(hint) or hint,)
    if isinstance(value, bool):
        return bool in allowed
    return isinstance(value, allowed) or (isinstance(value, int) and float in allowed)
