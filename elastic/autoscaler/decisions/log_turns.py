# SPDX-License-Identifier: Apache-2.0
"""The decision log read: each turn as it was, and decided again."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.decisions.decision_log import LOG_NAME, core
from kfp_volcano.elastic.autoscaler.decisions.deltas import applied, blank
from kfp_volcano.elastic.autoscaler.decisions.log_folder import log_files, log_lines
from kfp_volcano.elastic.autoscaler.own_policies import own_policies
from kfp_volcano.elastic.policies.choice import policy_for
from kfp_volcano.elastic.policies.policy import Decision
from kfp_volcano.errors import Problem, SpecError
from kfp_volcano.schemas.packing import unpack
from kfp_volcano.schemas.policy_validation import policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from kfp_volcano.elastic.policies.choice import Factory
    from kfp_volcano.elastic.policies.guards import Guarded
    from kfp_volcano.elastic.policies.snapshot import QueueSnapshot

__all__ = ["Difference", "Replayed", "Turn", "legible", "log_folders", "replay", "turns"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a queue, as the log holds it."""

    snapshot: QueueSnapshot
    decisions: Mapping[str, Decision]
    """By Job; of a Job whose decision differs from the turn before in words alone, in the words of that one."""
    new: frozenset[str]
    """Jobs whose decision is of this very turn, words and numbers included."""
    requests: Mapping[str, str]
    """Ids of the requests it led to, by Job."""
    policy: str
    """The id of the Policy that was in force."""
    version: str
    """Of what decided."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that came out otherwise."""

    at: float
    queue: str
    job: str
    logged: Decision | None
    decided: Decision | None


@dataclass(slots=True)
class Replayed:
    """What came of deciding a log again."""

    decisions: int = 0
    turns: int = 0
    differences: list[Difference] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)
    """Which have written the log."""


def log_folders(path: Path) -> list[Path]:
    """The folders with decision logs at or below a path. Raises SpecError where there is none."""
    candidates = [path, *sorted(each for each in path.rglob("*") if each.is_dir())] if path.is_dir() else []
    found = [each for each in candidates if log_files(each, LOG_NAME)]
    if not found:
        raise SpecError(f"there is no decision log ({LOG_NAME}-*.jsonl) in it", source=str(path))
    return found


def turns(lines: Iterable[Mapping[str, Any]], policies: dict[str, Mapping[str, Any]] | None = None) -> Iterator[Turn]:
    """The turns in the lines of one log, in order.

    What goes before the first whole turn of a queue is left out, for it cannot be known. `policies` is filled with the
    documents of the Policies by id.
    """
    seen: dict[str, QueueSnapshot] = {}
    decided: dict[str, dict[str, Decision]] = {}
    version = ""
    for line in lines:
        match line.get("kind"):
            case "begin":
                seen, decided, version = {}, {}, str(line.get("version", ""))
            case "policy" if policies is not None:
                with legible():
                    policies[line["policy"]] = line["document"]
            case "turn" if line.get("whole") or line.get("queue") in seen:
                with legible():
                    turn = _turn(line, seen, decided, version)
                yield turn


def _turn(
    line: Mapping[str, Any], seen: dict[str, QueueSnapshot], decided: dict[str, dict[str, Decision]], version: str
) -> Turn:
    queue = line["queue"]
    if line.get("whole"):
        seen[queue], decided[queue] = blank(queue), {}
    before = seen[queue]
    snapshot = seen[queue] = applied(before, line["seen"], remembered=before.memory)
    new = [unpack(Decision, each) for each in line["decided"]]
    decided[queue] |= {each.job: each for each in new}
    present = {job.key for job in snapshot.jobs}
    decided[queue] = {job: each for job, each in decided[queue].items() if job in present}
    return Turn(
        snapshot,
        dict(decided[queue]),
        frozenset(each.job for each in new),
        line.get("requests", {}),
        line["policy"],
        version,
    )


@contextmanager
def legible() -> Iterator[None]:
    """Raises SpecError where a line that is taken apart within it is not as this version writes lines."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"a line of it cannot be read ({type(error).__name__}: {error})"
        remedy = "lines are as an autoscaler wrote them, of this version or one before"
        raise SpecError([Problem("decision log", what, remedy)], source="decision log") from error


def replay(folder: Path, own: Mapping[str, Factory] | None = None) -> Replayed:
    """Decide every turn of a log again. Raises SpecError where a policy that decided is not there any more."""
    own = own_policies() if own is None else own
    documents: dict[str, Mapping[str, Any]] = {}
    made: dict[str, Guarded] = {}
    found = Replayed()
    for turn in turns(log_lines(folder, LOG_NAME), documents):
        if turn.policy not in made:
            if turn.policy not in documents:
                raise SpecError(f"the Policy {turn.policy} is not in the log: a line of it is torn", source=str(folder))
            made[turn.policy] = policy_for(policy(documents[turn.policy], own=own), own)
        decisions = {each.job: each for each in made[turn.policy].decide(turn.snapshot)}
        found.turns += 1
        found.decisions += len(turn.decisions)
        found.versions.add(turn.version)
        found.differences += [
            Difference(turn.snapshot.at, turn.snapshot.queue, job, turn.decisions.get(job), decisions.get(job))
            for job in sorted({*turn.decisions, *decisions})
            if not _same(turn.decisions.get(job), decisions.get(job), words=job in turn.new)
        ]
    return found


def _same(logged: Decision | None, decided: Decision | None, *, words: bool) -> bool:
    if logged is None or decided is None:
        return False
    return logged == decided if words else core(logged) == core(decided)
