# SPDX-License-Identifier: Apache-2.0
"""The figures of a run: what `result.json` holds, made from what the run left behind.

The samples come from the workers' ledgers alone, the queue from the autoscaler's timeline, resizes and steps from the
Job's annotations. A figure without a source is None, and a note says why. Every field is described, with its unit, in
`schemas/json/result.v1.schema.json`.
"""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any

from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import Owner, ResizeOutcome, StepRecord, parse, parse_list
from kfp_volcano.volcano.launcher import pauses
from kfp_volcano.volcano.launcher import timeline as queue_timeline
from kfp_volcano.volcano.launcher.batches import batches
from kfp_volcano.volcano.manifests.status import JobState, job_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kfp_volcano.elastic.ledger import Audit
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = ["SCHEMA", "build_result"]

SCHEMA = "kfp-volcano/result/v1"

_THROUGHPUT_POINTS = 120
_SHORTEST_WINDOW_S = 1.0


def build_result(
    *,
    audit: Audit | None,
    job: Manifest,
    timeline: Sequence[dict[str, Any]],
    manifest: Mapping[str, Any] | None,
    started_at: float,
    ended_at: float,
    trace: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The figures of a run, for a training that ended well or badly.

    Args:
        audit: What the ledgers prove; None where there are none, or no final weights to walk back from.
        job: The Volcano Job with its annotations.
        timeline: The lines of `queue.jsonl`; empty where no autoscaler led the queue.
        manifest: `final/manifest.json`; None or empty where training did not end.
        started_at: When the run began, Unix seconds.
        ended_at: When the run ended, Unix seconds.
        trace: The story of the Job (`launcher.trace`).

    Returns:
        A JSON object that `schemas/json/result.v1.schema.json` describes.
    """
    metadata, annotations = job["metadata"], job["metadata"].get("annotations") or {}
    key = f"{metadata['namespace']}/{metadata['name']}"
    team = (metadata.get("labels") or {}).get(names.TEAM_LABEL) or metadata["namespace"]
    queue = job["spec"]["queue"]
    lines = queue_timeline.queue_lines(timeline, queue)
    gangs = queue_timeline.other_gangs(lines, team)
    final = manifest or {}
    owner = annotations.get(names.OWNER)
    state, reason = _ending(job)
    return {
        "schema": SCHEMA,
        "job": key,
        "team": team,
        "queue": queue,
        "run_id": parse(Owner, owner).run_id if owner else None,
        "state": state,
        "reason": reason,
        "started_at": started_at,
        "ended_at": ended_at,
        "wall_s": round(ended_at - started_at, 3),
        "accuracy": _finite(final.get("metrics", {}).get("accuracy")),
        "epochs": final.get("epochs"),
        "batch": final.get("batch"),
        **_samples(audit),
        **_training(audit, annotations, initial=_initial_workers(job, annotations)),
        "workers": _workers(audit, lines, key),
        "steps": _dag_steps(annotations),
        "other_gang": gangs[0] if gangs else None,
        "other_gangs": gangs,
        "gpus": queue_timeline.gpus(lines) if lines else None,
        "trace": list(trace),
        "problems": [str(problem) for problem in audit.problems] if audit else [],
        "notes": _notes(audit, lines, final),
    }


def _ending(job: Manifest) -> tuple[str, str | None]:
    """The Job's state, and why it is in it where that is not plain success."""
    state = job_state(job)
    if state is JobState.SUCCEEDED:
        return state.value, None
    status = (job.get("status") or {}).get("state") or {}
    return state.value, ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key)) or None


def _initial_workers(job: Manifest, annotations: Mapping[str, str]) -> int:
    """How many workers the Job was submitted with: what its first resize began from, else what it has now."""
    resizes = parse_list(ResizeOutcome, annotations.get(names.RESIZE))
    if resizes:
        return resizes[0].from_workers
    tasks = job["spec"].get("tasks", [])
    return sum(int(task["replicas"]) for task in tasks if task["name"] in {names.CORE, names.ELASTIC})


def _samples(audit: Audit | None) -> dict[str, Any]:
    fields = ("samples_expected", "samples_seen", "duplicates", "missing", "skipped", "batches_sha256")
    return {field: getattr(audit, field) if audit else None for field in fields}


def _training(audit: Audit | None, annotations: Mapping[str, str], *, initial: int) -> dict[str, Any]:
    """What the training did and what changes of its membership cost it."""
    resizes = sorted(parse_list(ResizeOutcome, annotations.get(names.RESIZE)), key=lambda resize: resize.requested_at)
    if audit is None:
        return {
            "loss": None,
            "batches": None,
            "metrics": None,
            "throughput": None,
            "progress": None,
            "median_step_s": None,
            "steps_lost": None,
            "taken_back": None,
            "resizes": [_resize(resize, resize.pause_s, resize.steps_lost) for resize in resizes],
            "interruptions": None,
        }
    lost_at = [attempt.time for attempt in audit.lost if not attempt.taken_back]
    turned_at = [turn.time for turn in audit.rollbacks]
    costs = pauses.resize_costs(audit.commits, resizes, lost_at, turned_at=turned_at)
    usual = pauses.median_step(audit.commits)
    windows = _throughput_windows([(commit.time, commit.samples) for commit in audit.commits])
    return {
        "loss": _points(audit.losses),
        "batches": batches(audit.commits),
        "metrics": _metrics(audit),
        "throughput": [[samples, rate] for _, samples, rate in windows],
        "progress": [[time, samples] for time, samples, _ in windows],
        "median_step_s": None if usual is None else round(usual, 4),
        "steps_lost": len(lost_at),
        "taken_back": len(audit.lost) - len(lost_at),
        "resizes": [
            _resize(resize, cost.pause_s if cost else None, cost.steps_lost if cost else None)
            for resize, cost in zip(resizes, costs, strict=True)
        ],
        "interruptions": [
            {
                "time": change.time,
                "from": change.from_workers,
                "to": change.to_workers,
                "pause_s": change.cost.pause_s,
                "steps_lost": change.cost.steps_lost,
            }
            for change in pauses.interruptions(audit.commits, resizes, lost_at, initial=initial, turned_at=turned_at)
        ],
    }


def _resize(resize: ResizeOutcome, pause_s: float | None, steps_lost: int | None) -> dict[str, Any]:
    return {
        "id": resize.id,
        "from": resize.from_workers,
        "to": resize.to_workers,
        "reason": resize.reason,
        "explanation": resize.explanation,
        "phase": resize.phase.value,
        "message": resize.message,
        "requested_at": resize.requested_at,
        "patched_at": resize.patched_at,
        "ready_at": resize.ready_at,
        "done_at": resize.done_at,
        "pause_s": pause_s,
        "steps_lost": steps_lost,
    }


def _workers(audit: Audit | None, lines: Sequence[dict[str, Any]], key: str) -> list[list[float]] | None:
    """Workers over time as the training counted them, else as the queue saw them."""
    if audit and audit.commits:
        last = audit.commits[-1]
        return [*queue_timeline.steps_of((c.time, c.workers) for c in audit.commits), [last.time, last.workers]]
    seen = queue_timeline.workers(lines, key)
    return [*seen, [lines[-1]["time"], seen[-1][1]]] if seen else None


def _metrics(audit: Audit) -> dict[str, list[list[float | None]]]:
    logged_names = sorted({name for logged in audit.metrics for name in logged.values})
    return {
        name: _points((logged.samples, logged.values[name]) for logged in audit.metrics if name in logged.values)
        for name in logged_names
    }


def _points(points: Iterable[tuple[int, float]]) -> list[list[float | None]]:
    return [[samples, _finite(value)] for samples, value in points]


def _finite(value: float | None) -> float | None:
    """A figure as JSON can hold it: a diverged training's NaN has no form there."""
    return value if value is not None and isfinite(value) else None


def _throughput_windows(committed: Sequence[tuple[float, int]]) -> list[tuple[float, int, float]]:
    """(end, samples by then, samples per second within) of windows of at least a second each."""
    if len(committed) < 2:  # noqa: PLR2004 - a rate needs two moments
        return []
    width = max(_SHORTEST_WINDOW_S, (committed[-1][0] - committed[0][0]) / _THROUGHPUT_POINTS)
    edges = [committed[0]]
    for moment in committed[1:]:
        if moment[0] - edges[-1][0] >= width:
            edges.append(moment)
    return [
        (end, samples, round((samples - before) / (end - begin), 2))
        for (begin, before), (end, samples) in pairwise(edges)
    ]


def _dag_steps(annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    records = sorted(parse_list(StepRecord, annotations.get(names.STEPS)), key=lambda step: step.started_at)
    return [
        {
            "name": step.name,
            "outcome": step.outcome,
            "started_at": step.started_at,
            "ended_at": step.ended_at,
            "attempt": step.attempt,
        }
        for step in records
    ]


def _notes(audit: Audit | None, lines: Sequence[dict[str, Any]], final: Mapping[str, Any]) -> list[str]:
    notes = []
    if audit is None:
        notes.append("There are no final weights with ledgers to audit: samples, loss and throughput are unknown.")
    if not final:
        notes.append("Training left no final model: accuracy and epochs are unknown.")
    elif "accuracy" not in final.get("metrics", {}):
        notes.append("The training code logged no accuracy.")
    if not lines:
        notes.append("No autoscaler watched the queue: its GPUs and the gangs of others are unknown.")
    return notes
