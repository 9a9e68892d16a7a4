# SPDX-License-Identifier: Apache-2.0
"""Pods whose preflight failed, and the nodes that they were on: what is to be done. Pure: objects and time come in.

The pod's template avoids nodes with the label `kfp-volcano/unfit`. So a node on which a preflight failed is marked
with it for a time, the pod is taken away, and Volcano makes it anew on another node. How often is bounded for each
Job, and what was done stands on the Job: whoever looks next goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from kfp_volcano.elastic.autoscaler.contracts import job_key, read, read_list, spec_of
from kfp_volcano.schemas.names import MOVES, PREFLIGHT, UNFIT, UNFIT_LABEL
from kfp_volcano.schemas.records import Move, Unfit
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.manifests.frameworks import coordinated
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.manifests.status import JobState, job_state
from kfp_volcano.volcano.model.objects import parse_time, terminating

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kfp_volcano.schemas.training_job import TrainingJob
    from kfp_volcano.volcano.cluster.base import Manifest

__all__ = [
    "Action",
    "Fail",
    "Mark",
    "Note",
    "Release",
    "Restart",
    "TakeAway",
    "actions",
    "expiry",
    "failure_of",
    "marked",
    "most_moves",
    "releases",
    "told",
]

_NOT_RUN = frozenset({126, 127})
"""Exit codes of a preflight that could not be run: that is no fault of the node's devices."""
_KILLED = frozenset({137, 143})
"""Exit codes of a preflight that was ended with its pod."""
_WORKERS_A_MOVE = 10
_AGAIN_S = 30.0
"""After how long a Job that was told to begin anew, and has not, is told again."""
_ACTIVE = frozenset({JobState.PENDING, JobState.RUNNING})


@dataclass(frozen=True, slots=True)
class Note:
    """Write down on the Job which pods failed, before anything is done about them."""

    moves: tuple[Move, ...]
    """All of the Job's, newest last."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Have pods with devices avoid a node."""

    node: str
    unfit: Unfit


@dataclass(frozen=True, slots=True)
class TakeAway:
    """Delete a pod, for the Job's controller to make it anew."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Begin the Job anew, one of whose pods cannot be taken away alone."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the Job."""

    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """Take a mark off a node, whose time is over."""

    node: str
    text: str
    """The mark, as it reads."""


Action: TypeAlias = Note | Mark | TakeAway | Restart | Fail | Release


def actions(job: Manifest, pods: Iterable[Manifest], nodes: Iterable[Manifest], now: float) -> list[Action]:
    """What is to be done, in this order; nothing of it harms where another has done it already.

    Args:
        job: The Job as read from the cluster.
        pods: Its pods.
        nodes: Nodes, of which those with a mark are looked at.
        now: Unix seconds.
    """
    nodes = list(nodes)
    marks = {node["metadata"]["name"]: text for node in nodes if (text := _mark_text(node))}
    wanted = list(_about_pods(job, pods, marks, now))
    again = {action.node for action in wanted if isinstance(action, Mark)}
    return [*wanted, *(each for each in releases(nodes, now) if each.node not in again)]


def marked(nodes: Iterable[Manifest]) -> list[Manifest]:
    """The nodes with a mark, whoever set it."""
    return [node for node in nodes if UNFIT_LABEL in (node["metadata"].get("labels") or {})]


def releases(nodes: Iterable[Manifest], now: float) -> Iterator[Release]:
    """What is to be done about marks whose time is over, whatever Job set them."""
    for node in nodes:
        text, until = _mark_text(node), expiry(node)
        if text and until is not None and until <= now:
            yield Release(node["metadata"]["name"], text)


def expiry(node: Manifest) -> float | None:
    """When a node's mark is over, Unix seconds; None where it has none, or one that a person set."""
    unfit = read(Unfit, _mark_text(node))
    return unfit.until if unfit else None


def most_moves(job: Manifest, spec: TrainingJob) -> int:
    """How many of a Job's pods may be taken off their nodes: `faults.retries`, or a tenth of its workers if more."""
    return max(spec.faults.retries, workers(job) // _WORKERS_A_MOVE)


def _about_pods(job: Manifest, pods: Iterable[Manifest], marks: dict[str, str], now: float) -> Iterator[Action]:
    spec = spec_of(job)
    if spec is None or spec.faults.preflight is None or job_state(job) is JobState.SUCCEEDED:
        return
    failed = [(pod, failure) for pod in pods if (failure := failure_of(pod))]
    if not failed:
        return
    known = tuple(read_list(Move, annotation(job, MOVES)))
    noted = {move.uid for move in known}
    moves = (*known, *(failure for _, failure in failed if failure.uid not in noted))
    active = job_state(job) in _ACTIVE and not terminating(job)
    why = _hopeless([failure for _, failure in failed], moves, most_moves(job, spec))
    if why and active:
        yield Fail(why)
    if why:
        return
    if moves != known:
        yield Note(moves)
    # The last failure of a node is the one that counts.
    latest = {each.node: each for each in sorted((failure for _, failure in failed), key=lambda each: each.at)}
    for failure in latest.values():
        yield from _mark(job, failure, failure.at + spec.faults.preflight.unfit_for_s, marks, now)
    # A pod that has failed as a whole is dealt with by the Job's policies.
    stuck = {each.uid: each for pod, each in failed if not terminating(pod) and pod["status"]["phase"] == "Pending"}
    if not active:
        return
    if _restarts_whole(spec):
        yield from _restart(moves, stuck, now)
    else:
        yield from (TakeAway(each.pod, each.uid) for each in stuck.values())


def _restart(moves: Sequence[Move], stuck: Collection[str], now: float) -> Iterator[Action]:
    """Noted first, with the time: of two who look at once only one may write that, and tell the Job."""
    if any(each.uid in stuck and (each.restarted_at or 0.0) + _AGAIN_S <= now for each in moves):
        yield Note(tuple(replace(each, restarted_at=now) if each.uid in stuck else each for each in moves))
        yield Restart()


def _mark(job: Manifest, failure: Move, until: float, marks: dict[str, str], now: float) -> Iterator[Mark]:
    present = read(Unfit, marks.get(failure.node))
    if until > now and (present is None or present.until < until):
        unfit = Unfit(until=until, job=job_key(job), pod=failure.pod, exit_code=failure.exit_code)
        yield Mark(failure.node, unfit)


def _hopeless(failed: Sequence[Move], moves: Sequence[Move], most: int) -> str:
    """Why another node would not help, or nothing."""
    broken = next((each for each in failed if each.exit_code in _NOT_RUN), None)
    if broken:
        return f"its preflight could not be run: {told(broken)}"
    if len(moves) > most:
        where = ", ".join(dict.fromkeys(each.node for each in moves))
        return f"its preflight failed {len(moves)} times, on {where}, and may {most} times; {told(moves[-1])}"
    return ""


def told(move: Move) -> str:
    """How a preflight ended, in words."""
    lines = "".join(f"\n    {line}" for line in move.message.splitlines()) or "\n    (it printed nothing)"
    return f"in {move.pod} on node {move.node} it ended with exit code {move.exit_code}; its last lines:{lines}"


def failure_of(pod: Manifest) -> Move | None:
    """How the preflight of a pod failed; None where it did not, is not over, or was ended with its pod."""
    status = pod.get("status") or {}
    preflight = next((each for each in status.get("initContainerStatuses") or () if each["name"] == PREFLIGHT), None)
    if preflight is None or status.get("reason"):  # evicted, or its node shut down
        return None
    ended = _last_end(preflight)
    code = int(ended.get("exitCode") or 0)
    if code == 0 or (terminating(pod) and code in _KILLED):
        return None
    return Move(
        pod=pod["metadata"]["name"],
        uid=pod["metadata"]["uid"],
        node=str(pod["spec"].get("nodeName") or ""),
        exit_code=code,
        at=parse_time(ended["finishedAt"]),
        message=str(ended.get("message") or ""),
    )


def _last_end(status: dict[str, Any]) -> dict[str, Any]:
    """The last end of a container that may have been started again since."""
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        if "terminated" in state:
            return dict(state["terminated"])
    return {}


def _restarts_whole(spec: TrainingJob) -> bool:
    """Whether a Job does not go on without one of its pods: it has a policy on what is taken away (fixed Jobs only)."""
    return not coordinated(spec) and spec.faults.evicted != "replace"


def _mark_text(node: Manifest) -> str | None:
    labelled = UNFIT_LABEL in (node["metadata"].get("labels") or {})
    return annotation(node, UNFIT) if labelled else None
