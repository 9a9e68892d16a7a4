# SPDX-License-Identifier: Apache-2.0
"""Adding up what the ledgers say of the final weights."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kfp_volcano.elastic.ledger.due import due_counts
from kfp_volcano.elastic.ledger.entries import (
    Commit,
    Feed,
    Metric,
    Rollback,
    Skip,
    genesis,
    lineage_digest,
    parse,
    rollback_digest,
    skip_digest,
)
from kfp_volcano.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Audit", "Lost", "audit", "commits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """An attempt that was fed but did not lead to the final weights."""

    attempt: str
    step: int
    time: float
    """When the first worker fed it."""
    taken_back: bool = False
    """Whether it had counted until a rollback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What the ledgers say about the final weights."""

    samples_expected: int
    """By the plan, less those that were passed over on purpose."""
    samples_seen: int
    """Samples fed, counted once for each time."""
    duplicates: int
    """Samples fed again within an epoch, over all epochs; where some are due more often than others, fed more often
    than was due in all epochs together."""
    missing: int
    """Samples never fed in an epoch, over all epochs, though they were neither passed over nor dropped with its
    incomplete batch; where some are due more often than others, fed less often than was due."""
    batches_sha256: str
    """Digest of the sequence of global batches as sets: for each step its length and its sorted ids, as little-endian
    64-bit numbers. The same for any number of workers."""
    commits: tuple[Commit, ...]
    """The steps that led to the final weights, in order; `time` is that of the first worker that committed."""
    lost: tuple[Lost, ...]
    """Work that was done and discarded, by time."""
    metrics: tuple[Metric, ...]
    """What was logged on the way to the final weights, by step."""
    skipped: int = 0
    """Samples that were passed over on purpose."""
    rollbacks: tuple[Rollback, ...] = ()
    """How training went back on the way to the final weights, in order."""
    problems: tuple[Problem, ...] = field(default=())
    """Everything in the ledgers that is not as it must be; empty for a sound training."""

    @property
    def losses(self) -> list[tuple[int, float]]:
        """The loss of each step over the samples committed with it."""
        return [(commit.samples, commit.loss) for commit in self.commits]

    def steps_lost(self, since: float, until: float) -> int:
        """How many attempts were begun between two times (Unix seconds) and discarded, other than by a rollback."""
        return sum(since <= entry.time < until and not entry.taken_back for entry in self.lost)


def commits(files: Mapping[str, Sequence[str]]) -> list[Commit]:
    """All attempts that ever counted, whether or not they led to the final weights, each at its first worker's time."""
    ledgers = _Ledgers()
    for name, lines in sorted(files.items()):
        ledgers.read(name, lines)
    return ledgers.commits


def audit(
    files: Mapping[str, Sequence[str]],
    manifest: Mapping[str, Any],
    *,
    expected: Callable[[int, int], Iterable[int]] | None = None,
) -> Audit:
    """Adds up what led to the weights that `manifest` (`final/manifest.json`) describes.

    Args:
        files: each ledger's lines by its name. The last line of a file may be torn, as a killed process leaves it.
        manifest: `lineage`, `step`, `size`, `batch`, `epochs` and `seed` of the final weights; `samples` where it was
            `stopped_early`; `last` where incomplete batches may have been dropped, `due` (`due_text`) where samples are
            not due once an epoch.
        expected: the ids that are due by plan where so many samples are committed, and so many come with the step
            (`sharding.Plan`), to compare with those really fed.
    """
    size, batch, epochs = int(manifest["size"]), int(manifest["batch"]), int(manifest["epochs"])
    ledgers = _Ledgers()
    for name, lines in sorted(files.items()):
        ledgers.read(name, lines)
    start = genesis(seed=int(manifest["seed"]), size=size, batch=batch, epochs=epochs)
    path = ledgers.path(str(manifest["lineage"]), start, int(manifest["step"]))
    chain = [entry for entry in path if isinstance(entry, Commit)]
    skips = [entry for entry in path if isinstance(entry, Skip)]
    rollbacks = tuple(entry for entry in path if isinstance(entry, Rollback))
    problems = ledgers.problems

    dropped: dict[int, int] = {}
    batches = ledgers.batches(
        path, expected, dropped, ends=size if manifest.get("last") == "drop" else None, most=batch
    )
    ended = int(manifest["samples"]) if manifest.get("stopped_early") else size * epochs
    due = [min(size, max(0, ended - epoch * size)) - dropped.get(epoch, 0) for epoch in range(epochs)]
    each = due_counts(str(manifest["due"])) if "due" in manifest else None
    duplicates, missing = _uses(path, batches, size=size, due=due, each=each, problems=problems)
    skipped = sum(len(skip.ids) for skip in skips)
    ancestors = {start} | {entry.lineage for entry in path}
    return Audit(
        samples_expected=ended - skipped - sum(dropped.values()),
        samples_seen=sum(len(fed) for fed in batches),
        duplicates=duplicates,
        missing=missing,
        skipped=skipped,
        batches_sha256=_batches_digest(batches),
        commits=tuple(chain),
        lost=ledgers.lost({commit.attempt for commit in chain}, rollbacks),
        rollbacks=rollbacks,
        metrics=ledgers.metrics(ancestors),
        problems=tuple(problems),
    )


def _uses(
    path: Sequence[Commit | Rollback | Skip],
    batches: Sequence[NDArray[np.int64]],
    *,
    size: int,
    due: Sequence[int],
    each: NDArray[np.int64] | None,
    problems: list[Problem],
) -> tuple[int, int]:
    """Duplicates and missing samples, over all epochs.

    `batches` are those of the commits, `due` how many samples each epoch should have fed or passed over; `each` how
    often each sample should have been, where that is not once an epoch.
    """
    fed_in: dict[int, list[NDArray[np.int64]]] = {epoch: [] for epoch in range(len(due))}
    skipped_in: dict[int, list[int]] = {}
    fed = iter(batches)
    for entry in path:
        if isinstance(entry, Skip):
            skipped_in.setdefault(entry.epoch, []).extend(entry.ids)
        if not isinstance(entry, Commit):
            continue
        if entry.epoch not in fed_in:
            problems.append(Problem(f"step {entry.step}", f"epoch {entry.epoch} is outside 0..{len(due) - 1}"))
        fed_in.setdefault(entry.epoch, []).append(next(fed))
    duplicates, missing = 0, 0
    size = size if each is None else len(each)
    left = None if each is None else each.copy()
    for epoch, parts in fed_in.items():
        ids = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        known = ids[(ids >= 0) & (ids < size)]
        if len(known) < len(ids):
            problems.append(Problem(f"epoch {epoch}", f"ids outside 0..{size - 1} were fed"))
        counts = np.bincount(known, minlength=size)
        if left is not None:
            passed = [sample for sample in skipped_in.get(epoch, ()) if 0 <= sample < size]
            left -= counts + np.bincount(np.array(passed, dtype=np.int64), minlength=size)
            continue
        duplicates += int(np.maximum(counts - 1, 0).sum())
        counts[[sample for sample in skipped_in.get(epoch, ()) if 0 <= sample < size]] += 1
        missing += max(0, due[epoch] - int((counts > 0).sum())) if epoch in range(len(due)) else 0
    if left is not None:
        return int(np.maximum(-left, 0).sum()), int(np.maximum(left, 0).sum())
    return duplicates, missing


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
        self._turns: dict[str, Rollback | Skip] = {}
        self._metrics: list[Metric] = []

    def read(self, name: str, lines: Sequence[str]) -> None:
        for number, line in enumerate(lines, start=1):
            try:
                entry = parse(line)
            except (ValueError, TypeError, KeyError) as error:
                if number < len(lines):
                    self.problems.append(Problem(f"{name}:{number}", f"damaged line: {error}"))
                continue
            if isinstance(entry, Feed):
                self._feeds.setdefault(entry.attempt, []).append(entry)
            elif isinstance(entry, Commit):
                self._note(entry, f"{name}:{number}")
            elif isinstance(entry, Rollback | Skip):
                self._turn(entry, f"{name}:{number}")
            elif isinstance(entry, Metric):
                self._metrics.append(entry)

    @property
    def commits(self) -> list[Commit]:
        """All of them, in no order."""
        return list(self._commits.values())

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

    def _turn(self, entry: Rollback | Skip, place: str) -> None:
        if isinstance(entry, Rollback):
            due = rollback_digest(entry.parent, entry.to)
        else:
            due = skip_digest(entry.parent, entry.epoch, entry.samples)
        if entry.lineage != due:
            self.problems.append(Problem(place, f"the {entry.kind}'s lineage does not follow from its parent"))
        known = self._turns.setdefault(entry.lineage, entry)
        if isinstance(known, Skip) and isinstance(entry, Skip) and known.ids != entry.ids:
            self.problems.append(
                Problem(place, f"disagrees with another worker on what is passed over at {known.step}")
            )

    def path(self, last: str, first: str, steps: int) -> list[Commit | Rollback | Skip]:
        """What led from state `first` to state `last`, in order; `steps` commits."""
        found: list[Commit | Rollback | Skip] = []
        commits: list[Commit] = []
        lineage, seen = last, set[str]()
        while lineage != first:
            entry = self._commits.get(lineage) or self._turns.get(lineage)
            if entry is None or lineage in seen:
                place = f"step {commits[-1].step - 1}" if commits else "final/manifest.json"
                self.problems.append(Problem(place, f"no ledger holds the commit that led to state {lineage[:8]}…"))
                break
            seen.add(lineage)
            found.append(entry)
            if isinstance(entry, Commit):
                commits.append(entry)
            lineage = entry.to if isinstance(entry, Rollback) else entry.parent
        found.reverse()
        commits.reverse()
        for index, commit in enumerate(commits, start=steps - len(commits)):
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

    def batches(
        self,
        path: Sequence[Commit | Rollback | Skip],
        expected: Callable[[int, int], Iterable[int]] | None,
        dropped: dict[int, int],
        *,
        ends: int | None,
        most: int,
    ) -> list[NDArray[np.int64]]:
        """What was fed in each commit of a path, compared with what was `expected`.

        Notes in `dropped`, by epoch, the samples that were left out at its end: below `most`, where every `ends`
        samples an epoch ends. With `ends` None there are none.
        """
        found = []
        before = 0 if path and path[0].step == 0 else None
        for entry in path:
            if isinstance(entry, Rollback):
                continue  # the state it goes back to is the one before it in the path
            fed = self.fed(entry) if isinstance(entry, Commit) else np.array(entry.ids, dtype=np.int64)
            if isinstance(entry, Commit):
                found.append(fed)
            if before is not None:
                count = entry.samples - before
                if ends and entry.samples % ends == 0 and 0 < count - len(fed) < most:
                    dropped[entry.epoch] = count - len(fed)
                    count = len(fed)
                if isinstance(entry, Commit) and expected is not None:
                    planned = np.sort(np.fromiter(expected(before, count), dtype=np.int64))
                    if not np.array_equal(planned, fed):
                        problem = "the samples fed are not those of the plan's batch"
                        self.problems.append(Problem(f"step {entry.step}", problem))
            before = entry.samples
        return found

    def lost(self, counted: set[str], rollbacks: Iterable[Rollback]) -> tuple[Lost, ...]:
        """What was fed and did not count in the end."""
        taken_back: set[str] = set()
        for rollback in rollbacks:
            lineage = rollback.parent
            while lineage != rollback.to:
                entry = self._commits.get(lineage) or self._turns.get(lineage)
                if entry is None:
                    break
                if isinstance(entry, Commit):
                    taken_back.add(entry.attempt)
                lineage = entry.to if isinstance(entry, Rollback) else entry.parent
        entries = [
            Lost(
                attempt=attempt,
                step=feeds[0].step,
                time=min(feed.time for feed in feeds),
                taken_back=attempt in taken_back,
            )
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
