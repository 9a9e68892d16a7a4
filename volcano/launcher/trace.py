# SPDX-License-Identifier: Apache-2.0
"""The story of a Job: who changed what, when, why, and what training did after it.

Joined from what several parts wrote: the Job's annotations (what was asked of it, and what became of that), the log of
operations of its workers, and their ledgers, which say what training did before and after.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.ledger import commits
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas import names
from kfp_volcano.schemas.events import Event, Kind, read
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.schemas.records import ClassChange, Hold, Move, ResizeOutcome, StepRecord, parse, parse_list
from kfp_volcano.volcano.launcher.folder import job_folder, ledger_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kfp_volcano.elastic.ledger import Commit
    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["Entry", "Pace", "as_json", "event_lines", "trace", "trace_on_cluster", "trace_recorded"]

_STEPS = 20
"""What training did before and after something is told of so many steps."""

_CHANGES = {
    *(Kind.RESIZED, Kind.BATCH_CHANGED, Kind.RATE_LOWERED, Kind.ROLLED_BACK),
    *(Kind.LOSS_SPIKE, Kind.GRADIENT_SPIKE, Kind.NOT_FINITE, Kind.SLOW_DOWN, Kind.STRAGGLER, Kind.WORKER_LOST),
}
"""Kinds of events that training may go on differently after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How training went over some steps."""

    steps: int
    loss: float | None
    """Mean; None where no step's was finite."""
    throughput: float | None
    """Samples per second; None for a single step."""
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that happened."""

    time: float
    """Unix seconds."""
    kind: str
    """An event's kind, or `Resize`, `PriorityClass`, `Hold`, `Moved`, `Step`."""
    who: str
    """The worker, step, policy or person."""
    what: str
    why: str = ""
    step: int | None = None
    """Of training, where it is known."""
    samples: int | None = None
    before: Pace | None = None
    """How training went before it; None where it changes nothing in training, or training told nothing."""
    after: Pace | None = None


def trace(
    annotations: Mapping[str, str], events: Mapping[str, Sequence[str]], ledgers: Mapping[str, Sequence[str]]
) -> list[Entry]:
    """The entries by time.

    Args:
        annotations: the Job's; empty where there is no Job any more.
        events: the lines of each file of the log of operations, by its name.
        ledgers: likewise of the ledgers.
    """
    series = _Series(commits(ledgers))
    found = [*_asked(annotations, series), *(_seen(event, series) for event in read(events))]
    return sorted(found, key=lambda entry: entry.time)


def trace_on_cluster(cluster: Cluster, reference: JobRef) -> list[Entry]:
    """The entries of a Job that is there; without its volume, what its annotations say. Raises NotFoundError."""
    job = reference.read(cluster)
    folder = job_folder(cluster, job)
    seen = folder is not None and folder.exists()
    return trace(
        job["metadata"].get("annotations") or {},
        event_lines(folder) if folder and seen else {},
        ledger_lines(folder) if folder and seen else {},
    )


def trace_recorded(folder: Path, job: str | None = None) -> tuple[str, list[Entry]]:
    """The Job's name and its entries, from the folder of a run, of a report or of the Job itself.

    Args:
        folder: holds `result.json`, or the Job's `ledger` and `events`, in itself or below.
        job: which Job, where there are several: its name, or that of its TrainingJob.

    Raises:
        SpecError: Nothing is there that tells of the Job.
    """
    wanted = (job or "").rpartition("/")[2]
    results = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.rglob("result.json"))]
    for _, result in results:
        name = str(result.get("job", "")).rpartition("/")[2]
        if result.get("trace") is not None and name.startswith(wanted):
            return str(result["job"]), [_entry(value) for value in result["trace"]]
    for path in sorted(folder.rglob("ledger")):
        if path.parent.name.startswith(wanted) or path.parent == folder:
            return path.parent.name, trace({}, event_lines(path.parent), ledger_lines(path.parent))
    what = f"no result.json with a trace, and no ledger, of {job or 'a Job'}"
    raise SpecError([Problem(str(folder), what, "the output folder of a run, or a Job's own on its volume")])


def event_lines(folder: Path) -> dict[str, list[str]]:
    """The lines of each process's log of operations in a Job's folder, by file name."""
    return {
        path.name: path.read_text(encoding="utf-8", errors="replace").splitlines()
        for path in sorted((folder / "events").glob("*.jsonl"))
    }


def _entry(value: dict[str, Any]) -> Entry:
    paces = {key: Pace(**value[key]) if value.get(key) else None for key in ("before", "after")}
    return Entry(**{**value, **paces})


def _seen(event: Event, series: _Series) -> Entry:
    told = event.kind in _CHANGES
    return Entry(
        time=event.time,
        kind=event.kind.value,
        who=event.owner,
        what=event.message,
        why=str(event.facts.get("why", "")),
        step=event.step,
        samples=event.samples,
        before=series.before(event.time) if told else None,
        after=series.after(event.time) if told else None,
    )


def _asked(annotations: Mapping[str, str], series: _Series) -> Iterator[Entry]:
    """What was done to the Job from outside."""
    for resize in parse_list(ResizeOutcome, annotations.get(names.RESIZE)):
        began = resize.patched_at or resize.requested_at
        message = f" ({resize.message})" if resize.message else ""
        yield Entry(
            time=resize.requested_at,
            kind="Resize",
            who=resize.executed_by,
            what=f"{resize.from_workers} → {counted(resize.to_workers, 'worker')}: {resize.phase.value}{message}",
            why=f"{resize.reason}: {resize.explanation}",
            before=series.before(began),
            after=series.after(resize.done_at or began),
        )
    for change in parse_list(ClassChange, annotations.get(names.CLASSES)):
        what = f"priority class {change.from_class or 'none'} → {change.to_class or 'none'}"
        why = f"{change.reason}: {change.explanation}"
        yield Entry(time=change.at, kind="PriorityClass", who=change.by, what=what, why=why)
    for move in parse_list(Move, annotations.get(names.MOVES)):
        what = f"{move.pod} was taken off node {move.node}"
        yield Entry(time=move.at, kind="Moved", who="preflight", what=what, why=move.message)
    for step in parse_list(StepRecord, annotations.get(names.STEPS)):
        tries = f" (attempt {step.attempt})" if step.attempt > 1 else ""
        yield Entry(time=step.started_at, kind="Step", who=step.name, what=f"{step.outcome}{tries}", why=step.saw)
    if annotations.get(names.HOLD):
        hold = parse(Hold, annotations[names.HOLD])
        size = "" if hold.override is None else f", at {counted(hold.override, 'worker')}"
        yield Entry(time=hold.until, kind="Hold", who=hold.by, what=f"held until then{size}", why=hold.reason)


class _Series:
    """What training did, step by step as the clock went, rolled back or not."""

    def __init__(self, found: Sequence[Commit]) -> None:
        self._commits = sorted(found, key=lambda commit: commit.time)
        self._times = [commit.time for commit in self._commits]
        samples = {commit.lineage: commit.samples for commit in found}
        self._counts = [max(0, each.samples - samples.get(each.parent, each.samples)) for each in self._commits]

    def before(self, time: float) -> Pace | None:
        """Of the steps up to a time."""
        end = bisect_right(self._times, time)
        return self._pace(max(0, end - _STEPS), end)

    def after(self, time: float) -> Pace | None:
        """Of the steps from a time on."""
        start = bisect_right(self._times, time)
        return self._pace(start, start + _STEPS)

    def _pace(self, start: int, end: int) -> Pace | None:
        steps = self._commits[start:end]
        if not steps:
            return None
        losses = [step.loss for step in steps if isfinite(step.loss)]
        took = steps[-1].time - steps[0].time
        fed = sum(self._counts[start + 1 : end])
        return Pace(
            steps=len(steps),
            loss=fmean(losses) if losses else None,
            throughput=fed / took if took > 0 else None,
            workers=steps[-1].workers,
        )


def as_json(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The entries as `result.json` holds them."""
    return [asdict(entry) for entry in entries]
