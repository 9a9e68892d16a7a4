# SPDX-License-Identifier: Apache-2.0
"""What must hold of everything that is ever written, told from the store's history and not from what anybody believes.

Of a Job, whoever writes:

- A program changes its size in the write that records it, to a size that its spec allows, never below its gang.
- A request is only written when the last one is answered. It has a reason, an explanation, and who it is by; it is for
  a size that the Job may have, and not the one it has.
- A resize goes forward: Accepted, Patched, Ready, and its end, which never changes. No two are open at once, and no id
  comes twice.
- Each step is recorded by whoever executes it: who held the Job's Lease by its own clock, unless the request was urgent
  or refused as it was written, or it ends because it has run out, which anybody may say. (What arrives long after it
  was sent is excused: that it does no harm the other laws say.)
- Nobody resizes a Job that is held, except to the size that was set, once the hold has been there for longer than
  anything that is known may be old.

Of a Lease: nobody takes it before it has ended, by the taker's clock; and an autoscaler decides for a queue only while
it holds the queue's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.autoscaler.contracts import answered, hold_of, outcomes, request_of, spec_of
from kfp_volcano.elastic.autoscaler.lease import term_of
from kfp_volcano.elastic.policies.policy import Reason
from kfp_volcano.schemas.names import CORE, REQUEST, RESIZE
from kfp_volcano.schemas.records import Phase, ResizeOutcome, ResizeRequest
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.model.objects import Transition, key_of

if TYPE_CHECKING:
    from storms.program import Program
    from storms.storm import Storm

__all__ = ["Witness"]

OLD_S = 180.0
"""How old what a process knows may be: a silent watch (30 s), a view that is given up (30 s), a write that is tried for
30 s with answers that take 10 s, a process that stands still (90 s)."""
JUST_S = 45.0
"""How long a call may be under way that began before a clock was set."""
_NEXT = {
    None: {Phase.ACCEPTED, Phase.PATCHED, Phase.EXPIRED, Phase.REFUSED},
    Phase.ACCEPTED: {Phase.PATCHED, Phase.REFUSED},
    Phase.PATCHED: {Phase.PATCHED, Phase.READY, Phase.ROLLED_BACK, Phase.EXPIRED},
    Phase.READY: {Phase.DONE, Phase.ROLLED_BACK},
}
_REASONS = {reason.value for reason in Reason} | {"Person"}


class Witness:
    """Looks at every change."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.writes: list[str] = []
        """What was done to Jobs' sizes, requests and resizes."""
        self._held_since: dict[tuple[str, str], tuple[float, float | None]] = {}
        self._terms: dict[tuple[str, str], float] = {}
        """Until when, by its own clock, a process may believe to hold a Lease: by Lease and process."""

    def look(self, transition: Transition) -> None:
        """At one change."""
        old, new = transition.old, transition.new
        if new is None:
            return
        if transition.kind == "Lease":
            self._lease(old, new)
        elif transition.kind == "Job" and old is not None:
            for wrong in self._job(old, new, self._storm.writer):
                self._storm.broken(f"{new['metadata']['name']}, written by {self._who()}: {wrong}")

    def _who(self) -> str:
        return self._storm.writer.name if self._storm.writer else "a person, or Volcano"

    # Jobs.
    def _job(self, old: Any, new: Any, writer: Program | None) -> Iterator[str]:
        self._watch_hold(old, new)
        size, before = workers(new), workers(old)
        asked = annotation(old, REQUEST) != annotation(new, REQUEST)
        recorded = annotation(old, RESIZE) != annotation(new, RESIZE)
        if size != before:
            self._note(new, f"{before} -> {size} workers")
        if writer is None:
            return
        if size != before:
            yield from _wrong_size(old, new, recorded=recorded)
        if asked:
            yield from self._request(old, new, writer)
        if recorded:
            yield from self._outcomes(old, new, writer)
        if asked or size != before:
            yield from self._in_spite_of_hold(new, size if size != before else None)

    def _request(self, old: Any, new: Any, writer: Program) -> Iterator[str]:
        request, spec = request_of(new), spec_of(new)
        if request is None or spec is None:
            yield f"a request that nobody can read: {annotation(new, REQUEST)}"
            return
        self._note(new, f"asked for {request.from_workers} -> {request.to_workers}: {request.explanation}")
        if not answered(old):
            yield f"asked for again, before the last request was answered: {request}"
        if request.to_workers not in spec.workers.replicas.sizes:
            yield f"asked for {request.to_workers}, and may have {spec.workers.replicas.sizes}"
        if request.from_workers != workers(old) or request.to_workers == request.from_workers:
            yield f"asked for {request.from_workers} -> {request.to_workers}, and had {workers(old)}"
        if request.reason not in _REASONS or not request.explanation or request.by != writer.name:
            yield f"asked without a reason, or in another's name: {request}"
        if request.urgent and request.to_workers > request.from_workers:
            yield f"grown at once: {request}"

    def _outcomes(self, old: Any, new: Any, writer: Program) -> Iterator[str]:
        before = {outcome.id: outcome for outcome in outcomes(old)}
        after = outcomes(new)
        if len({outcome.id for outcome in after}) != len(after):
            yield f"answered twice: {after}"
        if sum(not outcome.phase.final for outcome in after) > 1:
            yield f"two resizes at once: {after}"
        if len(after) < min(50, len(before)):
            yield f"forgot what was: {before} became {after}"
        for outcome in after:
            if outcome != before.get(outcome.id):
                yield from self._step(before.get(outcome.id), outcome, new, writer)

    def _step(self, before: ResizeOutcome | None, after: ResizeOutcome, job: Any, writer: Program) -> Iterator[str]:
        self._note(job, f"{after.id} {after.phase.value} by {self._who()} {after.message}")
        if after.phase not in _NEXT.get(before.phase if before else None, set()):
            yield f"{before} became {after}"
        if not after.reason or not after.explanation:
            yield f"resized without a reason: {after}"
        request = request_of(job)
        urgent = before is None and request is not None and request.urgent and request.id == after.id
        refused = before is None and after.phase is Phase.REFUSED
        if urgent or refused or after.phase is Phase.EXPIRED or writer.late:
            return
        if not self.holds(writer, "/".join(key_of(job)), writer.began_at):
            yield f"carried out without the Job's Lease: {after}"

    def holds(self, program: Program, lease: str, at: float) -> bool:
        """Whether a process held a Lease by its own clock; overlooked shortly after that was set."""
        return self._just_set(program) or at <= self._terms.get((lease, program.name), 0.0)

    def _just_set(self, program: Program) -> bool:
        return self._storm.now < program.jumped_at + JUST_S

    # Holds.
    def _watch_hold(self, old: Any, new: Any) -> None:
        if hold_of(old) != hold_of(new):
            self._held_since[key_of(new)] = (self._storm.now, workers(new))

    def _in_spite_of_hold(self, job: Any, size: int | None) -> Iterator[str]:
        hold, request = hold_of(job), request_of(job)
        since = self._held_since.get(key_of(job), (self._storm.now, None))[0]
        now = self._storm.now
        if hold is None or now < since + OLD_S or now + OLD_S > hold.until:
            return
        wanted: ResizeRequest | None = request
        automatic = wanted is not None and wanted.policy != "person"
        if size is None and automatic and wanted is not None and wanted.to_workers != hold.override:
            yield f"asked for {wanted.to_workers} in spite of {hold}"

    # Leases.
    def _lease(self, old: Any, new: Any) -> None:
        before, after = term_of(old) if old is not None else None, term_of(new)
        writer = self._storm.writer
        if writer is None:
            return
        name = "/".join(key_of(new))
        if after.holder == writer.name:
            self._terms[name, writer.name] = after.ends_at
        else:
            self._terms.pop((name, writer.name), None)
        if before is None or not before.holder or before.holder in {after.holder, writer.name}:
            return
        self._storm.count("lease taken")
        if after.holder != writer.name:
            self._storm.broken(f"{name}: {writer.name} gave away what {before.holder} held, to {after.holder!r}")
        elif before.ends_at > writer.began_at and not writer.late and not self._just_set(writer):
            left = before.ends_at - writer.began_at
            self._storm.broken(f"{name}: {writer.name} took it from {before.holder} {left:.1f} s before its end")

    def _note(self, job: Any, what: str) -> None:
        text = f"{job['metadata']['name']}: {what}"
        self._storm.say(text)
        self.writes.append(text)


def _wrong_size(old: Any, new: Any, *, recorded: bool) -> Iterator[str]:
    spec, size = spec_of(new), workers(new)
    if spec is None:
        yield "resized, and is not one of ours"
        return
    if size not in spec.workers.replicas.sizes:
        yield f"has {size} workers now, and may have {spec.workers.replicas.sizes}"
    if not recorded:
        yield f"resized from {workers(old)} to {size} without a record"
    cores = [[task for task in job["spec"]["tasks"] if task["name"] == CORE] for job in (old, new)]
    if cores[0] != cores[1] or old["spec"]["minAvailable"] != new["spec"]["minAvailable"]:
        yield "its gang was changed"
