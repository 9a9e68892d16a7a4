# SPDX-License-Identifier: Apache-2.0
"""The lines of a ledger, and the digests that chain them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, asdict, dataclass, fields
from typing import ClassVar

__all__ = [
    "Commit",
    "Discard",
    "Entry",
    "Feed",
    "Leave",
    "Metric",
    "Rollback",
    "Skip",
    "Start",
    "attempt_digest",
    "genesis",
    "lineage_digest",
    "parse",
    "rollback_digest",
    "skip_digest",
    "to_line",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A worker process begins."""

    kind: ClassVar[str] = "start"
    pod: str
    incarnation: str
    time: float
    seed: int
    size: int
    batch: int
    epochs: int
    lineage: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A worker is about to feed samples. `ids` is empty where there are more workers than samples."""

    kind: ClassVar[str] = "feed"
    attempt: str
    step: int
    epoch: int
    parent: str
    world: int
    rank: int
    ids: list[int]
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A worker has seen an attempt succeed."""

    kind: ClassVar[str] = "commit"
    attempt: str
    step: int
    epoch: int
    parent: str
    lineage: str
    world: int
    """Processes of all workers."""
    loss: float
    samples: int
    """All samples committed, this step's included."""
    time: float
    lr: float | None = None
    """What the step learned at, of the first parameter group; None in ledgers of versions before 0.2."""
    processes: int = 1
    """Processes of each worker; ledgers of versions before 0.2 do not say it."""

    @property
    def workers(self) -> int:
        """How many workers committed."""
        return self.world // self.processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """A worker has seen an attempt fail."""

    kind: ClassVar[str] = "discard"
    attempt: str
    step: int
    time: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Training went back to an earlier state, of `step` steps."""

    kind: ClassVar[str] = "rollback"
    step: int
    from_step: int
    parent: str
    to: str
    lineage: str
    time: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Samples are not fed in this epoch, on purpose."""

    kind: ClassVar[str] = "skip"
    step: int
    epoch: int
    parent: str
    lineage: str
    ids: list[int]
    samples: int
    """All samples committed or passed over, these included."""
    time: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The training code logged values."""

    kind: ClassVar[str] = "metric"
    step: int
    samples: int
    epoch: int
    lineage: str
    values: dict[str, float]
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A worker process ends on purpose: `SIGTERM` or `finished`."""

    kind: ClassVar[str] = "leave"
    step: int
    time: float
    reason: str


Entry = Start | Feed | Commit | Discard | Rollback | Skip | Metric | Leave
_KINDS: dict[str, type[Entry]] = {
    kind.kind: kind for kind in (Start, Feed, Commit, Discard, Rollback, Skip, Metric, Leave)
}


def to_line(entry: Entry) -> str:
    """The entry as one line of a ledger, newline included."""
    return json.dumps({"kind": entry.kind, **asdict(entry)}, separators=(",", ":")) + "\n"


def genesis(*, seed: int, size: int, batch: int, epochs: int) -> str:
    """The lineage of a training that has not begun."""
    return _digest("genesis", seed, size, batch, epochs)


def attempt_digest(parent: str, rendezvous: str, step: int) -> str:
    """The identity of an attempt at `step` from state `parent` by the process group named `rendezvous`."""
    return _digest("attempt", parent, rendezvous, step)


def lineage_digest(parent: str, attempt: str) -> str:
    """The lineage of the state that follows `parent` when `attempt` counts."""
    return _digest("lineage", parent, attempt)


def rollback_digest(parent: str, to: str) -> str:
    """The lineage of the state that follows `parent` when training goes back to the state `to`."""
    return _digest("rollback", parent, to)


def skip_digest(parent: str, epoch: int, samples: int) -> str:
    """The lineage of the state that follows `parent` when the cursor moves on to `samples`, over all epochs."""
    return _digest("skip", parent, epoch, samples)


def _digest(*parts: object) -> str:
    # 128 bits of SHA-256: three of them stand in each line.
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:32]


_TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "list[int]": list,
    "dict[str, float]": dict,
}
_FIELDS = {kind: [(entry.name, _TYPES[str(entry.type)]) for entry in fields(kind)] for kind in _KINDS.values()}


_DEFAULTS = {kind: {entry.name for entry in fields(kind) if entry.default is not MISSING} for kind in _KINDS.values()}


def parse(line: str) -> Entry:
    """The entry in a line. Raises ValueError, TypeError or KeyError where it is none."""
    value = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError(f"a JSON {type(value).__name__} where an object must be")
    kind = _KINDS[value.pop("kind")]
    # A field of a newer version is no damage; a missing one without a default, or one of another type, is.
    known = {name: value[name] for name, _ in _FIELDS[kind] if name in value or name not in _DEFAULTS[kind]}
    for name, types in _FIELDS[kind]:
        if name in known and not isinstance(known[name], types):
            raise TypeError(f"{name} is {known[name]!r}")
    entry = kind(**known)
    if isinstance(entry, Feed) and not all(type(sample) is int for sample in entry.ids):
        raise TypeError("ids must be whole numbers")
    return entry
