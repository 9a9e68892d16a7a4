# SPDX-License-Identifier: Apache-2.0
"""How a step of a pipeline speaks, fails, and is remembered on its Job."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kfp_volcano.elastic.autoscaler.contracts import read_list
from kfp_volcano.errors import ClusterError, ConflictError, KfpVolcanoError, UnavailableError
from kfp_volcano.schemas.names import ENV_OUT, STEPS
from kfp_volcano.schemas.records import StepRecord, dump
from kfp_volcano.volcano.cluster.annotations import annotation, update_annotation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kfp_volcano.volcano.cluster.base import Cluster, Manifest
    from kfp_volcano.volcano.launcher.reference import JobRef

__all__ = ["Recording", "failing_cleanly", "job_began", "record_step", "recorded", "say"]


def say(line: str) -> None:
    """Print a line: a step's log is its standard output."""
    print(line, flush=True)  # noqa: T201


@contextmanager
def failing_cleanly(step: str) -> Iterator[None]:
    """Turn an error raised on purpose into a message and an exit code, without a traceback."""
    try:
        yield
    except KfpVolcanoError as error:
        print(f"{step}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        out = os.environ.get(ENV_OUT)
        if out:
            # kfp loses exit codes; the command line reads this one, of the step that failed first.
            record = {"step": step, "exit_code": error.exit_code, "message": str(error)}
            path = Path(out) / "error.json"
            if not path.exists():
                path.write_text(json.dumps(record), encoding="utf-8")
        sys.exit(error.exit_code)


@dataclass
class Recording:
    """How a step is going to have ended."""

    outcome: str = "Succeeded"


@contextmanager
def recorded(cluster: Cluster, ref: JobRef, name: str) -> Iterator[Recording]:
    """Keep the Job's record of a step: that it runs, and how it ended.

    A record that cannot be written ends no step: what it does is worth more. Raises NotFoundError where the Job is not
    there when the step begins.
    """
    started_at = time.time()
    with suppress(UnavailableError, ConflictError):
        record_step(cluster, ref, name, "Running", started_at)
    recording = Recording()
    try:
        yield recording
    except BaseException:
        recording.outcome = "Failed"
        raise
    finally:
        try:
            record_step(cluster, ref, name, recording.outcome, started_at, ended_at=time.time())
        except ClusterError as error:  # the Job may be gone, its time to live being over
            say(f"{name} has ended, but that could not be noted on its Job: {error}")


def record_step(
    cluster: Cluster,
    ref: JobRef,
    name: str,
    outcome: str,
    started_at: float,
    *,
    ended_at: float | None = None,
    saw: str = "",
) -> None:
    """Write on the Job how a step stands; a further word on the same attempt replaces the first."""
    attempt = int(os.environ.get("KFP_RETRY_INDEX") or 0)
    entry = StepRecord(name=name, attempt=attempt, outcome=outcome, started_at=started_at, ended_at=ended_at, saw=saw)

    def change(text: str | None) -> str:
        records = read_list(StepRecord, text)
        for index, record in enumerate(records):
            if (record.name, record.attempt) == (name, attempt):
                records[index] = replace(entry, started_at=record.started_at)
                return dump(records)
        return dump([*records, entry])

    update_annotation(cluster, "Job", ref.name, ref.namespace, STEPS, change)


def job_began(job: Manifest) -> float:
    """When the first step of a Job began, Unix seconds."""
    records = read_list(StepRecord, annotation(job, STEPS))
    return min((record.started_at for record in records), default=time.time())
