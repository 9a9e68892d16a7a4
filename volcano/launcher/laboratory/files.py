# SPDX-License-Identifier: Apache-2.0
"""The files of a comparison: figures, jobs and the best Policy; a file holds its whole content or what it held."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from typing import TYPE_CHECKING

import yaml

from kfp_volcano.elastic.simulator.figures import rhos

if TYPE_CHECKING:
    from pathlib import Path

    from kfp_volcano.elastic.simulator.outcome import Outcome
    from kfp_volcano.volcano.launcher.laboratory.study import Study

__all__ = ["COLUMNS", "jobs_csv", "write"]

COLUMNS = (
    "job", "team", "queue", "asked_gpus", "submitted_s", "started_s", "ended_s", "jct_s", "wait_s", "alone_s", "rho",
    "gpu_s", "lost_gpu_s", "resizes", "restarts", "done",
)  # fmt: skip


def jobs_csv(outcome: Outcome) -> str:
    """A line for each job, in the scenario's order; times in seconds, empty for what did not happen."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for job, rho in zip(outcome.jobs, rhos(outcome), strict=True):
        row = (
            job.name, job.team, job.queue, job.asked_gpus, job.submitted_at, job.started_at, job.ended_at, job.jct,
            job.waited_s, job.alone_s, rho, job.gpu_s, job.lost_gpu_s, job.resizes, job.restarts, job.done,
        )  # fmt: skip
        table.writerow(["" if each is None else each for each in row])
    return text.getvalue()


def write(folder: Path, study: Study, page: str) -> list[Path]:
    """Write `report.html`, `figures.json`, a CSV of jobs for each policy and, of a sweep, `best.yaml`.

    Returns their paths. Raises OSError where the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.html": page,
        "figures.json": json.dumps(study.wire(), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        **{f"jobs-{_safe(name)}.csv": jobs_csv(outcome) for name, outcome in study.outcomes.items()},
    }
    if study.swept and study.swept.best:
        texts["best.yaml"] = yaml.safe_dump(dict(study.swept.best.document), sort_keys=False)
    for name, text in texts.items():
        _replace(folder / name, text)
    return [folder / name for name in texts]


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
