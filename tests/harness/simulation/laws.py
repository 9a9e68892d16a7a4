# SPDX-License-Identifier: Apache-2.0
"""What must hold of every run, whatever goes wrong."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from kfp_volcano.schemas.names import RESIZE
from kfp_volcano.schemas.records import ResizeOutcome, parse_list
from kfp_volcano.volcano.cluster.annotations import annotation
from kfp_volcano.volcano.manifests.resize import workers
from kfp_volcano.volcano.manifests.status import JobState, job_state
from simulation.run import Simulation
from simulation.steps import JOB, NAMESPACE

__all__ = ["broken_laws"]

_LINE = re.compile(r"(?P<pod>\S+)(?P<again> \(again\?\))? \| (?P<text>.* of (?P<uid>\S+))$")
_KINDS = ("Job", "Pod", "PodGroup", "ConfigMap", "Secret", "Lease", "Command", "ResourceClaimTemplate")


def broken_laws(run: Simulation) -> list[str]:
    """What did not hold, in words."""
    return [*run.problems, *_one_job(run), *_nothing_left(run), *_right_end(run), *_resizes(run), *_lines(run)]


def _one_job(run: Simulation) -> Iterator[str]:
    if run.jobs_created > 1:
        yield f"the run created {run.jobs_created} Jobs"


def _nothing_left(run: Simulation) -> Iterator[str]:
    """After conclude there is a Job only if it succeeded; what belonged to one that went, went with it."""
    job = run.job()
    if job is not None:
        if job_state(job) is not JobState.SUCCEEDED:
            yield f"the Job is left behind, {job_state(job).value}"
        return
    name = JOB.partition("/")[2]
    for kind in _KINDS:
        for each in run.store.list(kind, NAMESPACE)[0]:
            if each["metadata"]["name"].startswith(name):
                yield f"{kind} {each['metadata']['name']} is left behind"


def _right_end(run: Simulation) -> Iterator[str]:
    """The run succeeds if and only if training did, and no step gave up that need not have."""
    # A step that is killed is not retried for ever.
    if run.terminated or any(code < 0 for code in run.ends.values()):
        return
    trained = "Completed" in run.job_phases
    if (run.state == "Succeeded") is not trained:
        yield f"the run is {run.state}, and its Job was {', '.join(run.job_phases)}; steps ended {run.ends}"


def _resizes(run: Simulation) -> Iterator[str]:
    if run.most_open > 1:
        yield f"{run.most_open} resizes were open at once"
    job = run.job()
    outcomes = parse_list(ResizeOutcome, annotation(job, RESIZE)) if job else []
    carried_out = [outcome for outcome in outcomes if outcome.patched_at is not None]
    if job and carried_out and carried_out[-1].to_workers != workers(job):
        yield f"the Job has {workers(job)} workers; the last outcome says {carried_out[-1]}"


def _lines(run: Simulation) -> Iterator[str]:
    """Each line of each pod once, in order; a second time only if marked, and that only after a step was stopped."""
    by_process: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    unmarked: Counter[str] = Counter()
    seen: dict[str, set[str]] = defaultdict(set)
    for each in run.printed:
        found = _LINE.match(each.text)
        if found is None:
            continue
        uid, text = found["uid"], found["text"]
        by_process[uid, each.step, each.attempt].append(text)
        seen[uid].add(text)
        unmarked[text] += not found["again"]
        if found["again"] and not run.killed and not run.stalled:
            yield f"marked, though no step was stopped: {each}"
    yield from (f"printed {count} times: {text}" for text, count in unmarked.items() if count > 1)
    there = {pod["metadata"]["uid"] for pod in run.store.list("Pod", NAMESPACE)[0]}
    for uid, runs in run.server.runs.items():
        lines = [text for each in runs for _, text in each.lines]
        known = {text: number for number, text in enumerate(lines)}
        for (of, step, attempt), told in by_process.items():
            if of == uid and [known[text] for text in told] != sorted(known[text] for text in told):
                yield f"out of order in {step}#{attempt}: {told}"
        missing = set(lines[: max((known[text] for text in seen[uid]), default=0)]) - seen[uid]
        if run.followed_to_the_end and uid in there:
            missing = set(lines) - seen[uid]
        if missing:
            yield f"never printed, of {run.nodes.names[uid]}: {sorted(missing)[:5]} ({len(missing)} of {len(lines)})"
