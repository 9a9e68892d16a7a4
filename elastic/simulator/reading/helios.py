# SPDX-License-Identifier: Apache-2.0
"""Helios, SenseTime's clusters of 2020, by virtual cluster.

`job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue` (S-Lab-System-Group/
HeliosData; Hu et al., SC'21): duration and queue, the time it waited, in seconds. Lucid's tables have these columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfp_volcano.elastic.simulator.reading.assumed import TraceJob

if TYPE_CHECKING:
    from kfp_volcano.elastic.simulator.reading.table import Table

__all__ = ["COLUMNS", "jobs"]

COLUMNS = frozenset({"job_id", "vc", "gpu_num", "submit_time", "duration"})


def jobs(table: Table) -> tuple[list[TraceJob], list[str]]:
    """The jobs of a trace, and what was left out. Complains of what is wrong to the table.

    Jobs without GPUs, and those that never ran, are in the trace for its authors' sake, and left out.
    """
    found: list[TraceJob] = []
    seen: dict[str, int] = {}
    without, never = 0, 0
    for row in table.rows():
        name, at = row.text("job_id"), row.time("submit_time")
        gpus, team = row.whole("gpu_num"), row.text("vc", default="")
        duration = 0.0 if row.absent("duration") else row.number("duration")
        if name in seen:
            row.wrong("job_id", f"{name} is the job of line {seen[name]} too", "an id of its own")
        seen.setdefault(name, row.line)
        if not row.sound:
            continue
        if not gpus:
            without += 1
        elif not duration:
            never += 1
        else:
            found.append(TraceJob(name=name, at=at, duration_s=duration, gpus=gpus, team=team))
    notes = [f"{without} jobs without GPUs are left out"] if without else []
    return found, notes + ([f"{never} jobs that never ran are left out"] if never else [])
