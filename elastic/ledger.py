"""What each worker really fed to the model, step by step, and the audit that adds it up.

A ledger is JSON lines, one file a process, each line written before the work it speaks of. `step` counts the steps
committed before the one a line speaks of, so a step's lines carry the index of its global batch.

======== ============================================================================================================
start    the process begins at `step`, on the state with digest `lineage`
feed     the samples this worker feeds in an *attempt* at a step; `parent` is the state the attempt starts from
commit   the attempt counted: the state with digest `lineage` follows `parent`; every worker that committed writes it
discard  the attempt did not commit here; another worker may still have committed it
metric   what the training code logged, in the state `lineage`
leave    the process ends on purpose
======== ============================================================================================================

An attempt is one try at one step by one set of workers: `attempt_digest` of the state before it, the rendezvous of the
workers' process group and the step. Equal on all who take part, never equal for two tries. `lineage` chains the
attempts that count, from `genesis`. The audit walks back from the final weights' lineage, so that work which did not
lead to them (redone steps, what came after the checkpoint a restart began with) is never mistaken for what they saw.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kfp_volcano.elastic.tally import tally
from kfp_volcano.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "Audit",
    "Commit",
    "Discard",
    "Feed",
    "Leave",
    "Lost",
    "Metric",
    "Start",
    "attempt_digest",
    "audit",
    "genesis",
    "lineage_digest",
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
    loss: float
    samples: int
    """All samples committed, this step's included."""
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """A worker has seen an attempt fail."""

    kind: ClassVar[str] = "discard"
    attempt: str
    step: int
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


Entry = Start | Feed | Commit | Discard | Metric | Leave
_KINDS: dict[str, type[Entry]] = {kind.kind: kind for kind in (Start, Feed, Commit, Discard, Metric, Leave)}


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


def _digest(*parts: object) -> str:
    # 128 bits of SHA-256: three of them stand in each line.
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """An attempt that was fed but did not lead to the final weights."""

    attempt: str
    step: int
    time: float
    """When the first worker fed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What the ledgers say about the final weights."""

    samples_expected: int
    samples_seen: int
    """Samples fed, counted once for each time."""
    duplicates: int
    """Samples fed again within an epoch, over all epochs; or more often in all than was due, where some are due more
    often than others."""
    missing: int
    """Samples never fed in an epoch, over all epochs; or less often in all than was due, likewise. Those that `drop`
    left out at an epoch's end are not missing."""
    batches_sha256: str
    """Digest of the sequence of global batches as sets: for each step its length and its sorted ids, as little-endian
    64-bit numbers. The same for any number of workers."""
    commits: tuple[Commit, ...]
    """The steps that led to the final weights, in order; `time` is that of the first worker that committed."""
    lost: tuple[Lost, ...]
    """Work that was done and discarded, by time."""
    metrics: tuple[Metric, ...]
    """What was logged on the way to the final weights, by step."""
    problems: tuple[Problem, ...] = field(default=())
    """Everything in the ledgers that is not as it must be; empty for a sound training."""

    @property
    def losses(self) -> list[tuple[int, float]]:
        """The loss of each step over the samples committed with it."""
        return [(commit.samples, commit.loss) for commit in self.commits]

    def steps_lost(self, since: float, until: float) -> int:
        """How many attempts were begun between two times (Unix seconds) and discarded."""
        return sum(since <= entry.time < until for entry in self.lost)


def audit(
    files: Mapping[str, Sequence[str]],
    manifest: Mapping[str, Any],
    *,
    expected: Callable[[int, int], Iterable[int]] | None = None,
) -> Audit:
    """Adds up what led to the weights that `manifest` (`final/manifest.json`) describes.

    Args:
        files: each ledger's lines by its name. The last line of a file may be torn, as a killed process leaves it.
        manifest: `lineage`, `step`, `size`, `batch`, `epochs` and `seed` of the final weights; `last` where incomplete
            batches were not kept as they were, `due` (`tally.due_text`) where not every sample is due once an epoch.
        expected: the ids that are due by plan where so many samples are committed, and so many come with the step
            (`sharding.Plan`), to compare with those really fed.
    """
    size, batch, epochs = int(manifest["size"]), int(manifest["batch"]), int(manifest["epochs"])
    ledgers = _Ledgers()
    for name, lines in sorted(files.items()):
        ledgers.read(name, lines)
    start = genesis(seed=int(manifest["seed"]), size=size, batch=batch, epochs=epochs)
    chain = ledgers.chain(str(manifest["lineage"]), start, int(manifest["step"]))
    problems = ledgers.problems

    batches: list[NDArray[np.int64]] = []
    dropped = 0
    before = 0 if chain and chain[0].step == 0 else None
    for commit in chain:
        fed = ledgers.fed(commit)
        batches.append(fed)
        if before is not None:
            count = commit.samples - before
            if manifest.get("last") == "drop" and commit.samples % size == 0 and len(fed) < count < 2 * len(fed):
                dropped, count = dropped + count - len(fed), len(fed)
            planned = fed if expected is None else np.sort(np.fromiter(expected(before, count), dtype=np.int64))
            if not np.array_equal(planned, fed):
                problems.append(Problem(f"step {commit.step}", "the samples fed are not those of the plan's batch"))
        before = commit.samples
    by_epoch: dict[int, list[NDArray[np.int64]]] = {epoch: [] for epoch in range(epochs)}
    for commit, fed in zip(chain, batches, strict=True):
        if commit.epoch not in by_epoch:
            problems.append(Problem(f"step {commit.step}", f"epoch {commit.epoch} is outside 0..{epochs - 1}"))
        by_epoch.setdefault(commit.epoch, []).append(fed)
    duplicates, missing, unknown = tally(by_epoch, size, epochs, manifest.get("due"))
    ancestors = {start} | {commit.lineage for commit in chain}
    return Audit(
        samples_expected=size * epochs - dropped,
        samples_seen=sum(len(fed) for fed in batches),
        duplicates=duplicates,
        missing=missing - dropped,
        batches_sha256=_batches_digest(batches),
        commits=tuple(chain),
        lost=ledgers.lost({commit.attempt for commit in chain}),
        metrics=ledgers.metrics(ancestors),
        problems=(*problems, *unknown),
    )


def _batches_digest(batches: Iterable[NDArray[np.int64]]) -> str:
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(len(batch).to_bytes(8, "little"))
        digest.update(batch.astype("<i8").tobytes())
    return digest.hexdigest()


class _Ledgers:
    """The entries of all files, by what the audit asks for."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._feeds: dict[str, list[Feed]] = {}
        self._commits: dict[str, Commit] = {}
        self._metrics: list[Metric] = []

    def read(self, name: str, lines: Sequence[str]) -> None:
        for number, line in enumerate(lines, start=1):
            try:
                entry = _parse(line)
            except (ValueError, TypeError, KeyError) as error:
                if number < len(lines):
                    self.problems.append(Problem(f"{name}:{number}", f"damaged line: {error}"))
                continue
            if isinstance(entry, Feed):
                self._feeds.setdefault(entry.attempt, []).append(entry)
            elif isinstance(entry, Commit):
                self._note(entry, f"{name}:{number}")
            elif isinstance(entry, Metric):
                self._metrics.append(entry)

    def _note(self, commit: Commit, place: str) -> None:
        if commit.lineage != lineage_digest(commit.parent, commit.attempt):
            self.problems.append(Problem(place, "the commit's lineage does not follow from its parent and attempt"))
        known = self._commits.setdefault(commit.lineage, commit)
        if (known.attempt, known.step, known.epoch, known.world, known.samples) != (
            commit.attempt,
            commit.step,
            commit.epoch,
            commit.world,
            commit.samples,
        ):
            self.problems.append(Problem(place, f"disagrees with another worker's commit of step {known.step}"))
        if commit.time < known.time:
            self._commits[commit.lineage] = commit

    def chain(self, last: str, first: str, steps: int) -> list[Commit]:
        """The commits from state `first` to state `last`, in order."""
        found: list[Commit] = []
        lineage = last
        while lineage != first:
            commit = self._commits.get(lineage)
            if commit is None or len(found) > steps:
                place = f"step {found[-1].step - 1}" if found else "final/manifest.json"
                self.problems.append(Problem(place, f"no ledger holds the commit that led to state {lineage[:8]}…"))
                break
            found.append(commit)
            lineage = commit.parent
        found.reverse()
        for index, commit in enumerate(found, start=steps - len(found)):
            if commit.step != index:
                self.problems.append(Problem(f"step {index}", f"the chain of commits has step {commit.step} here"))
        return found

    def fed(self, commit: Commit) -> NDArray[np.int64]:
        """All ids that the workers fed in a commit's attempt, sorted."""
        feeds = self._feeds.get(commit.attempt, [])
        ranks = sorted(feed.rank for feed in feeds)
        if ranks != list(range(commit.world)):
            self.problems.append(
                Problem(f"step {commit.step}", f"{commit.world} workers committed, ranks {ranks} wrote what they fed")
            )
        if any((feed.step, feed.parent) != (commit.step, commit.parent) for feed in feeds):
            self.problems.append(Problem(f"step {commit.step}", "workers fed it from different states"))
        return np.sort(np.array([sample for feed in feeds for sample in feed.ids], dtype=np.int64))

    def lost(self, counted: set[str]) -> tuple[Lost, ...]:
        entries = [
            Lost(attempt=attempt, step=feeds[0].step, time=min(feed.time for feed in feeds))
            for attempt, feeds in self._feeds.items()
            if attempt not in counted
        ]
        return tuple(sorted(entries, key=lambda entry: entry.time))

    def metrics(self, ancestors: set[str]) -> tuple[Metric, ...]:
        """One entry a step and state, the first that was written."""
        first: dict[tuple[int, str], Metric] = {}
        for entry in sorted(self._metrics, key=lambda entry: entry.time):
            if entry.lineage in ancestors:
                known = first.setdefault((entry.step, entry.lineage), entry)
                known.values.update({key: v for key, v in entry.values.items() if key not in known.values})
        return tuple(sorted(first.values(), key=lambda entry: entry.step))


_TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "list[int]": list,
    "dict[str, float]": dict,
}
_FIELDS = {kind: [(entry.name, _TYPES[str(entry.type)]) for entry in fields(kind)] for kind in _KINDS.values()}


def _parse(line: str) -> Entry:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError(f"a JSON {type(value).__name__} where an object must be")
    kind = _KINDS[value.pop("kind")]
    # A field of a newer version is no damage; a missing one, or one of another type, is.
    known = {name: value[name] for name, _ in _FIELDS[kind]}
    for name, types in _FIELDS[kind]:
        if not isinstance(known[name], types):
            raise TypeError(f"{name} is {known[name]!r}")
    entry = kind(**known)
    if isinstance(entry, Feed) and not all(type(sample) is int for sample in entry.ids):
        raise TypeError("ids must be whole numbers")
    return entry
