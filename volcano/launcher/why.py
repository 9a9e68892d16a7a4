# SPDX-License-Identifier: Apache-2.0
"""Why a Job has the size it has: each change with its reason and its cost, and what holds it now.

From the decision logs of autoscalers, and the results of runs beside them; or, without those, from what is written on
the Job.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.contracts import hold_of, open_request, outcomes, request_of
from kfp_volcano.elastic.autoscaler.decisions.decision_log import LOG_NAME, core
from kfp_volcano.elastic.autoscaler.decisions.log_folder import log_lines
from kfp_volcano.elastic.autoscaler.decisions.log_turns import legible, log_folders, turns
from kfp_volcano.elastic.autoscaler.own_policies import own_policies
from kfp_volcano.elastic.autoscaler.ranking import class_changes
from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.policies.policy import Decision
from kfp_volcano.errors import SpecError
from kfp_volcano.schemas.nouns import counted
from kfp_volcano.schemas.packing import unpack
from kfp_volcano.schemas.policy_validation import policy
from kfp_volcano.schemas.records import ClassChange, Phase, ResizeOutcome
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.manifests.status import job_state
from kfp_volcano.volcano.model.objects import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kfp_volcano.elastic.autoscaler.decisions.log_turns import Turn
    from kfp_volcano.volcano.cluster.base import Cluster
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["Change", "Why", "find_job", "why_on_cluster", "why_recorded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a Job's size that somebody asked for, and what became of it."""

    id: str
    at: float
    """When it was asked for, Unix seconds."""
    from_workers: int
    to_workers: int
    reason: str
    explanation: str
    by: str = ""
    """Who asked: an autoscaler or a person; empty where that is not recorded."""
    policy: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    phase: Phase | None = None
    """How far it came; None: nobody has taken it up yet."""
    ended_at: float | None = None
    pause_s: float | None = None
    steps_lost: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a Job has the size it has."""

    job: str
    """namespace/name."""
    queue: str
    changes: tuple[Change, ...] = ()
    """Oldest first."""
    began_at: float | None = None
    began_with: int | None = None
    """Workers it had when it was first seen, or before its first change."""
    workers: int | None = None
    """It has now, or had last."""
    classes: tuple[ClassChange, ...] = ()
    """How its priority class was changed, oldest first."""
    holds: Decision | None = None
    """The last decision about it: what holds it at its size."""
    seen_at: float | None = None
    """When that was decided."""
    note: str = ""
    """What is known beside: a person's hold, a state."""
    state: str = ""
    """How it ended; empty while it has not."""
    ended_at: float | None = None


@legible()
def why_recorded(path: Path, job: str) -> Why:
    """From the decision logs and results at and below a folder. Raises SpecError where none tells of such a Job.

    Args:
        path: A run's output folder, or that of an autoscaler's logs.
        job: A Job by namespace and name, by its name alone, or by the name of its TrainingJob.
    """
    folders = log_folders(path)
    named = _naming(folders, job) if "/" in job else []
    key = job if named else find_job(job, _jobs(folders))
    named = named or _naming(folders, key)
    changes: dict[str, Change] = {}
    queue, ended = "", None
    first: tuple[float, int] | None = None
    by = ""
    classes: list[ClassChange] = []
    for line in named:
        queue = str(line.get("queue", queue))
        match line["kind"]:
            case "begin":
                by = str(line.get("by", ""))
            case "turn":
                at = float(line["seen"].get("at", 0.0))
                entry = line["seen"].get("jobs", {}).get(key) or {}
                if "workers" in entry and (first is None or at < first[0]):  # logs of several autoscalers
                    first = (at, int(entry["workers"]))
                request = line.get("requests", {}).get(key)
                decided = next((each for each in line["decided"] if each["job"] == key), None)
                if request and decided:
                    changes[request] = _asked(request, at, unpack(Decision, decided), by)
            case "resized" if line["job"] == key:
                outcome = unpack(ResizeOutcome, line["outcome"])
                changes[outcome.id] = _ended(outcome, changes.get(outcome.id))
            case "reranked" if line["job"] == key:
                classes.append(unpack(ClassChange, line["change"]))
            case "ended" if line["job"] == key:
                ended = line
    changes = _with_results(path, key, changes)
    last = _last_turn(folders, key)
    present = next((each for each in last[0].snapshot.jobs if each.key == key), None) if last else None
    return Why(
        job=key,
        queue=queue,
        changes=tuple(sorted(changes.values(), key=lambda change: change.at)),
        began_at=first[0] if first else None,
        began_with=first[1] if first else None,
        workers=present.workers if present else None,
        classes=tuple(classes),
        holds=last[1] if last else None,
        seen_at=last[0].snapshot.at if last else None,
        state=str(ended["state"]) if ended else "",
        ended_at=ended["ended_at"] if ended else None,
    )


def why_on_cluster(cluster: Cluster, ref: JobRef, now: float) -> Why:
    """From what is written on the Job. Raises NotFoundError."""
    job = ref.read(cluster)
    request, held = request_of(job), hold_of(job)
    changes = {outcome.id: _ended(outcome, None) for outcome in outcomes(job)}
    if request is not None:
        asked = Change(
            id=request.id,
            at=request.at,
            from_workers=request.from_workers,
            to_workers=request.to_workers,
            reason=request.reason,
            explanation=request.explanation,
            by=request.by,
            policy=request.policy,
        )
        done = next((outcome for outcome in outcomes(job) if outcome.id == request.id), None)
        changes[request.id] = _ended(done, asked) if done else asked
    ordered = tuple(sorted(changes.values(), key=lambda change: change.at))
    count = workers(job)
    state = job_state(job)
    note = ""
    if held is not None and held.until > now:
        size = f" at {counted(held.override, 'worker')}" if held.override is not None else ""
        note = f"{held.by} holds it{size} for {held.until - now:.0f} s more{f' ({held.reason})' if held.reason else ''}"
    elif open_request(job, now) is not None:
        note = "its last request has not been carried out yet"
    return Why(
        job=str(ref),
        queue=str(job["spec"].get("queue") or "default"),
        changes=ordered,
        began_at=parse_time(job["metadata"]["creationTimestamp"]),
        began_with=ordered[0].from_workers if ordered else count,
        workers=count,
        classes=tuple(class_changes(job)),
        note=note,
        state=state.value if state.final else "",
    )


def find_job(asked: str, known: Iterable[str]) -> str:
    """The one of the `known` Jobs (namespace/name) that is meant. Raises SpecError where that is not exactly one."""
    known = sorted(set(known))
    ways = (
        [key for key in known if key == asked],
        [key for key in known if key.rpartition("/")[2] == asked],
        [key for key in known if asked in {key.rpartition("-")[0], key.rpartition("/")[2].rpartition("-")[0]}],
    )
    found = next((each for each in ways if each), [])
    if len(found) == 1:
        return found[0]
    if found:
        raise SpecError(f"{asked!r} may be any of {', '.join(found)}", source="JOB")
    there = f"it tells of {', '.join(known[:20])}" if known else "it tells of none"
    raise SpecError(f"the log does not tell of a Job {asked!r}: {there}", source="JOB")


def _naming(folders: Sequence[Path], job: str) -> list[dict[str, Any]]:
    """The lines that name a Job, and who wrote them; none where nothing does."""
    texts = (json.dumps(job, ensure_ascii=False), '"kind":"begin"')
    found = [line for folder in folders for line in log_lines(folder, LOG_NAME, naming=texts)]
    return found if any(line["kind"] != "begin" for line in found) else []


def _jobs(folders: Sequence[Path]) -> set[str]:
    """The Jobs that logs tell of."""
    found: set[str] = set()
    for folder in folders:
        for line in log_lines(folder, LOG_NAME, naming=('"kind":"turn"',)):
            found |= line["seen"].get("jobs", {}).keys()
    return found


def _asked(request: str, at: float, decision: Decision, by: str) -> Change:
    return Change(
        id=request,
        at=at,
        from_workers=decision.from_workers,
        to_workers=decision.to_workers,
        reason=decision.reason.value,
        explanation=decision.explanation,
        by=by,
        policy=decision.policy,
        numbers=decision.numbers,
    )


def _ended(outcome: ResizeOutcome, asked: Change | None) -> Change:
    """What was asked for with what became of it."""
    change = asked or Change(
        id=outcome.id,
        at=outcome.requested_at,
        from_workers=outcome.from_workers,
        to_workers=outcome.to_workers,
        reason=outcome.reason,
        explanation=outcome.explanation,
    )
    return replace(
        change,
        to_workers=outcome.to_workers,
        phase=outcome.phase,
        ended_at=outcome.done_at,
        pause_s=outcome.pause_s,
        steps_lost=outcome.steps_lost,
        message=outcome.message,
    )


def _with_results(path: Path, job: str, changes: dict[str, Change]) -> dict[str, Change]:
    """The changes with what runs have measured of them afterwards, from the ledgers of the workers."""
    found = dict(changes)
    for file in [path / "result.json", *path.glob("*/result.json")]:
        result: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            result = json.loads(file.read_text(encoding="utf-8"))
        for each in result.get("resizes", ()) if result.get("job") == job else ():
            outcome = ResizeOutcome(
                id=each["id"],
                phase=Phase(each["phase"]),
                from_workers=each["from"],
                to_workers=each["to"],
                reason=each["reason"],
                explanation=each["explanation"],
                requested_at=each["requested_at"],
                executed_by="",
                done_at=each["done_at"],
                pause_s=each["pause_s"],
                steps_lost=each["steps_lost"],
                message=each["message"],
            )
            found[outcome.id] = _ended(outcome, found.get(outcome.id))
    return found


def _last_turn(folders: Sequence[Path], job: str) -> tuple[Turn, Decision] | None:
    """The last turn that a Job was in, and what was decided about it, in the words of that turn."""
    last: Turn | None = None
    documents: dict[str, Mapping[str, Any]] = {}
    for folder in folders:
        for turn in turns(log_lines(folder, LOG_NAME, last=1), documents):
            if job in turn.decisions and (last is None or turn.snapshot.at >= last.snapshot.at):
                last = turn
    if last is None:
        return None
    logged = last.decisions[job]
    if job not in last.new and last.policy in documents:
        with suppress(SpecError):
            own = own_policies()
            decided = policy_for(policy(documents[last.policy], own=own), own).decide(last.snapshot)
            again = next(each for each in decided if each.job == job)
            return last, again if core(again) == core(logged) else logged
    return last, logged
