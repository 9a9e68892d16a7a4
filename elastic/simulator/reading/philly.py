# SPDX-License-Identifier: Apache-2.0
"""Philly, Microsoft's clusters of 2017: the table that AdaptDL's artifact has of it, and the original log.

The table is `timestamp,duration,num_gpus,gpu_time,cluster`, its jobs nameless. The log, `cluster_job_log` of
msr-fiddle/philly-traces (Jeon et al., ATC'19), is a JSON list of jobs: each has `jobid`, `vc`, `submitted_time` and
`attempts`, and each of these `start_time`, `end_time` and `detail`, the GPUs that it had on each machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfp_volcano.elastic.simulator.reading.assumed import TraceJob
from kfp_volcano.elastic.simulator.reading.entries import Entry, moment_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kfp_volcano.elastic.simulator.reading.table import Complaints, Table

__all__ = ["COLUMNS", "jobs", "logged_jobs"]

COLUMNS = frozenset({"timestamp", "duration", "num_gpus", "cluster"})


def jobs(table: Table) -> list[TraceJob]:
    """The jobs of the table, named after their lines. Complains of what is wrong to the table."""
    found = []
    for row in table.rows():
        at, duration = row.time("timestamp"), row.number("duration")
        gpus, team = row.whole("num_gpus", least=1), row.text("cluster")
        if duration == 0:
            row.wrong("duration", "is 0: the job never trained", "more than 0, or no such line")
        if row.sound:
            found.append(TraceJob(name=f"philly-{row.line}", at=at, duration_s=duration, gpus=gpus, team=team))
    return found


def logged_jobs(log: Sequence[Any], complaints: Complaints) -> tuple[list[TraceJob], list[str]]:
    """The jobs of the log, and what was left out of it.

    A job has the GPUs of its last attempt, and trained as long as all its attempts together. One that never ran, or
    has no end, is left out.
    """
    found: list[TraceJob] = []
    seen: dict[str, int] = {}
    unended = 0
    for number, value in enumerate(log, start=1):
        entry = Entry(number, value, complaints)
        name, team = entry.text("jobid"), entry.text("vc", default="")
        if name and name in seen:
            entry.wrong("jobid", f"{name} is the job of entry {seen[name]} too", "an id of its own")
        seen.setdefault(name, number)
        at = entry.time("submitted_time")
        duration, gpus = _ran(entry)
        if not entry.sound:
            continue
        if not duration or not gpus:
            unended += 1
            continue
        found.append(TraceJob(name=name, at=at, duration_s=duration, gpus=gpus, team=team))
    return found, [f"{unended} jobs that never ran, or have no end, are left out"] if unended else []


def _ran(entry: Entry) -> tuple[float, int]:
    """How long a job ran in all, and on how many GPUs at last."""
    duration, gpus = 0.0, 0
    for index, attempt in enumerate(entry.list("attempts")):
        place = f"attempts[{index}]"
        if not isinstance(attempt, dict):
            entry.wrong(place, "is no mapping", "start_time, end_time and detail")
            continue
        begin, end = (moment_of(attempt.get(key)) for key in ("start_time", "end_time"))
        if begin is None or end is None:
            if any(
                attempt.get(key) not in (None, "", "None")
                for key, read in (("start_time", begin), ("end_time", end))
                if read is None
            ):
                entry.wrong(place, "has a time that is none", "such as 2017-10-03 14:05:59")
            continue
        if end < begin:
            entry.wrong(place, "ends before it starts", "an end_time that is not before start_time")
            continue
        had = sum(
            len(each["gpus"])
            for each in attempt.get("detail") or ()
            if isinstance(each, dict) and isinstance(each.get("gpus"), list)
        )
        duration += end - begin
        gpus = had or gpus
    return duration, gpus
