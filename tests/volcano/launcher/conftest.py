# SPDX-License-Identifier: Apache-2.0
"""A run to report on, made up: 2 → 8 → 4 → 8 workers, a gang of another team, a killed worker that comes back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from kfp_volcano.elastic.ledger import Audit, Commit, Lost, Metric, attempt_digest, genesis, lineage_digest
from kfp_volcano.schemas import names
from kfp_volcano.schemas.records import Owner, Phase, ResizeOutcome, StepRecord, dump

START = 1_790_000_000.0
SIZE, BATCH, EPOCHS = 1437, 64, 20
JOB, GANG = "vision/digits-1a2b3c4d", "speech/gang"
USUAL_S = 0.32


@dataclass
class Run:
    """What a run left behind, for a test to change before it is reported on."""

    audit: Audit | None
    job: dict[str, Any]
    timeline: list[dict[str, Any]]
    manifest: dict[str, Any] | None
    started_at: float = START
    ended_at: float = START + 158.0
    resizes: list[ResizeOutcome] = field(default_factory=list)

    def arguments(self) -> dict[str, Any]:
        annotations = self.job["metadata"]["annotations"]
        annotations[names.RESIZE] = dump(self.resizes)
        return {
            "audit": self.audit,
            "job": self.job,
            "timeline": self.timeline,
            "manifest": self.manifest,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
        }


# (seconds from the start, workers from then on, length of the step that changed)
CHANGES = [(14.2, 8, 0.41), (61.4, 4, 0.52), (96.0, 8, 0.47), (124.0, 7, 0.95), (131.0, 8, 0.40)]


def commits() -> list[Commit]:
    """The committed steps: one each `USUAL_S`, but for those in which the membership changed."""
    made: list[Commit] = []
    time, world, samples, pending = 6.0, 2, 0, list(CHANGES)
    parent = genesis(seed=0, size=SIZE, batch=BATCH, epochs=EPOCHS)
    per_epoch = math.ceil(SIZE / BATCH)
    for step in range(EPOCHS * per_epoch):
        took = USUAL_S
        if pending and time >= pending[0][0]:
            _, world, took = pending.pop(0)
        time += took
        samples += min(BATCH, SIZE - step % per_epoch * BATCH)
        wobble = 1 + 0.35 * math.sin(step * 2.3) * math.cos(step * 0.7)
        loss = (2.3 * math.exp(-step / 55) + 0.035) * wobble
        attempt = attempt_digest(parent, f"group-{world}", step)
        lineage = lineage_digest(parent, attempt)
        made.append(
            Commit(
                attempt=attempt, step=step, epoch=step // per_epoch, parent=parent, lineage=lineage, world=world,
                loss=loss, samples=samples, time=START + time,
            )
        )  # fmt: skip
        parent = lineage
    return made


def audit() -> Audit:
    made = commits()
    lost = next(commit for before, commit in pairwise(made) if (before.world, commit.world) == (8, 7))
    accuracy = [
        Metric(
            step=commit.step + 1,
            samples=commit.samples,
            epoch=commit.epoch,
            lineage=commit.lineage,
            time=commit.time,
            values={"accuracy": 0.975 - 0.6 * math.exp(-(commit.epoch + 1) / 2.2) + 0.004 * math.sin(commit.epoch * 3)},
        )
        for commit in made
        if commit.samples % SIZE == 0
    ]
    return Audit(
        samples_expected=SIZE * EPOCHS,
        samples_seen=SIZE * EPOCHS,
        duplicates=0,
        missing=0,
        batches_sha256="5f" * 32,
        commits=tuple(made),
        lost=(Lost(attempt="ab" * 16, step=lost.step, time=lost.time - 0.3),),
        metrics=tuple(accuracy),
    )


def outcome(
    number: int, sizes: tuple[int, int], reason: str, explanation: str, times: tuple[float, float]
) -> ResizeOutcome:
    (before, after), (requested, done) = sizes, times
    return ResizeOutcome(
        id=f"r{number}",
        phase=Phase.DONE,
        from_workers=before,
        to_workers=after,
        reason=reason,
        explanation=explanation,
        requested_at=START + requested,
        executed_by=f"resize-{number}",
        accepted_at=START + requested + 0.4,
        patched_at=START + requested + 0.8,
        ready_at=START + done - 0.3,
        done_at=START + done,
    )


RESIZES = [
    outcome(1, (2, 8), "QueueIdle", "6 of 8 GPUs of queue research are idle: 8 workers fit.", (12.0, 15.1)),
    outcome(2, (8, 4), "GangPending", "speech/gang waits for 4 GPUs, and 4 of the workers are surplus.", (60.2, 62.6)),
    outcome(3, (4, 8), "QueueIdle", "4 of 8 GPUs of queue research are idle: 8 workers fit.", (94.0, 97.2)),
]


def timeline() -> list[dict[str, Any]]:
    def line(time: float, ours: int, gang: tuple[int, int] | None, pending: int = 0) -> dict[str, Any]:
        jobs = [
            {"job": JOB, "team": "vision", "gpus": ours, "pending_gpus": pending, "phase": "Running", "workers": ours}
        ]
        if gang:
            jobs.append({
                "job": GANG, "team": "speech", "gpus": gang[0], "pending_gpus": gang[1],
                "phase": "Running" if gang[0] else "Pending", "workers": None,
            })  # fmt: skip
        return {
            "kind": "queue",
            "time": START + time,
            "queue": "research",
            "limit": 8,
            "allocated": ours + (gang[0] if gang else 0),
            "jobs": jobs,
        }

    decision = {
        "kind": "decision", "time": START + 12.0, "job": JOB, "from": 2, "to": 8, "reason": "QueueIdle",
        "explanation": "6 of 8 GPUs are idle.", "policy": "threshold", "request": "r1",
    }  # fmt: skip
    return [
        line(2.0, 0, None, pending=2),
        line(3.1, 2, None),
        decision,
        line(12.8, 2, None, pending=6),
        line(13.4, 8, None),
        line(60.0, 8, (0, 4)),
        line(61.8, 4, (0, 4)),
        line(62.1, 4, (4, 0)),
        line(92.3, 4, None),
        line(94.8, 4, None, pending=4),
        line(95.5, 8, None),
        line(123.6, 7, None, pending=1),
        line(124.4, 8, None),
        line(156.0, 0, None),
    ]


STEPS = [
    StepRecord(name=name, attempt=1, outcome=result, started_at=START + begin, ended_at=START + end)
    for name, result, begin, end in (
        ("submit", "Succeeded", 0.5, 3.0),
        ("train-1", "Resized", 4.0, 12.2),
        ("resize-1", "Succeeded", 12.4, 15.2),
        ("train-2", "Resized", 16.0, 60.4),
        ("resize-2", "Succeeded", 60.9, 62.7),
        ("train-3", "Resized", 63.5, 94.2),
        ("resize-3", "Succeeded", 94.4, 97.3),
        ("train-4", "Succeeded", 98.0, 156.1),
        ("collect", "Succeeded", 156.4, 157.2),
    )
]


@pytest.fixture
def run() -> Run:
    """A run that ended well; each test has its own to change."""
    namespace, name = JOB.split("/")
    tasks = [
        {"name": "coordinator", "replicas": 1},
        {"name": "core", "replicas": 2},
        {"name": "elastic", "replicas": 6},
    ]
    return Run(
        audit=audit(),
        job={
            "metadata": {
                "namespace": namespace,
                "name": name,
                "labels": {names.TEAM_LABEL: "vision"},
                "annotations": {
                    names.OWNER: dump(Owner(run_id="run-7", step="submit", spec_hash="0" * 64)),
                    names.STEPS: dump(STEPS),
                },
            },
            "spec": {"queue": "research", "tasks": tasks},
            "status": {"state": {"phase": "Completed"}},
        },
        timeline=timeline(),
        manifest={
            "lineage": "c0" * 32, "step": 460, "samples": SIZE * EPOCHS, "epochs": EPOCHS, "size": SIZE, "batch": BATCH,
            "seed": 0, "files": ["model.pt"], "metrics": {"accuracy": 0.9722222222222222},
        },
        resizes=[replace(resize) for resize in RESIZES],
    )  # fmt: skip
